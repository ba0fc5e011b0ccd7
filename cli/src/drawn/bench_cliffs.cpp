// `attune bench --suite cliffs`: random problems, then those along each axis from a few anchors,
// then what is beside the worst; which of them take longest over the time of their least traffic,
// and where a step aside makes all the difference.
#include <map>
#include <new>
#include <tuple>

#include <attune/core/parallel_for.hpp>

#include "drawn/drawn_problems.hpp"
#include "drawn/survey.hpp"
#include "output/progress.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/host_ceilings.hpp"
#include "suites/measure.hpp"
#include "suites/suites.hpp"

namespace attune::cli {
namespace {

constexpr double kLaunchUs = 6;  // of a device that is not the host
constexpr double kMostBytes = 1e9;
constexpr std::size_t kShown = 20;
constexpr double kRandomShare = 0.5, kGridShare = 0.75;  // of the time, from its beginning

class Walk {
 public:
  Walk(const CommandContext& command, const Invocation& call)
      : command_(&command),
        problems_(command, call, kMostBytes),
        progress_(call.quiet),
        count_(call.options.integer("problems", 0, kMaxProblems).value_or(320)),
        bytes_per_us_(problems_.on_host() ? host_copy_bytes_per_us(usable_cores())
                                          : gpu_copy_bytes_per_us(problems_.device().info())),
        survey_(problems_.on_host() ? 0 : kLaunchUs),
        deadline_(call, std::chrono::minutes(3)) {
    settings_ = measure_settings(call.options);
    if (!call.options.flag("iters")) settings_.iters = 3;
    if (!call.options.flag("warmup")) settings_.warmup = 1;
    settings_.min_sample_us = 200;
    settings_.budget_us = 50'000;
  }

  void run() {
    for (std::int64_t i = 0; i < count_ && !deadline_.is_past(kRandomShare); ++i) {
      time("random", problems_.draw(static_cast<std::uint64_t>(i)));
    }
    for (const PointAxis& axis : point_axes()) {
      if (problems_.is_fixed(axis.name)) continue;
      for (const Point& anchor : anchors()) along(problems_.with_fixed(anchor), axis);
    }
    look_beside(survey_.worst(kShown));
  }

  Document document(bool for_people) const {
    Document document{{.name = "summary", .table = survey_.summary()},
                      {.name = "worst", .table = survey_.worst_table(kShown)},
                      {.name = "neighbours",
                       .table = survey_.neighbours_table(for_people ? kShown : kMaxProblems)}};
    if (!for_people) document.push_back({.name = "problems", .table = survey_.problems_table()});
    return document;
  }

 private:
  /// The problem's number in the survey.
  std::size_t time(std::string_view walk, DrawnProblem drawn) {
    const Target& target = drawn.target;
    const auto [known, is_new] = known_.try_emplace(
        {std::string(target.op->name), target.text, drawn.point.seed}, survey_.size());
    if (!is_new) return known->second;
    progress_.update(str(walk, " [", survey_.size() + 1, "] ", target.op->name, ' ', target.text));
    Measured measured{.walk = walk,
                      .point = drawn.point,
                      .op = std::string(target.op->name),
                      .problem = target.text,
                      .floor_us = target.op->bytes(target.problem) / bytes_per_us_};
    try {
      const Choice choice = command_->context().select(target.problem, command_->request(target));
      measured.kernel = choice.kernel->name();
      measured.config = config_text(*choice.kernel, choice.config);
      const Cases on =
          cases_to_rotate(*target.op, target.problem, *target.device, drawn.point.seed);
      const Launch launch(on, choice, *target.device);
      measured.median_us = measure(std::span(&launch, 1), settings_).front().median_us;
    } catch (const Unsupported&) {  // `attune explain` says why
      measured.kernel = "unsupported";
    } catch (const std::bad_alloc&) {
      measured.config = "out of memory";
    }
    return survey_.add(std::move(measured));
  }

  void along(const Point& anchor, const PointAxis& axis) {
    std::optional<std::size_t> before;
    for (const std::string& value : axis.values) {
      if (deadline_.is_past(kGridShare)) return;
      Point point = anchor;
      point.set(axis.name, value);
      const auto drawn = problems_.at(point);
      const auto number = drawn ? std::optional(time("grid", *drawn)) : std::nullopt;
      if (before && number) survey_.add_neighbours(*before, *number, axis.name);
      before = number;
    }
  }

  /// The first neighbour of each, the second of each, ...: where the time ends, none was left out.
  void look_beside(const std::vector<std::size_t>& numbers) {
    std::vector<std::vector<Neighbour>> neighbours;
    for (const std::size_t number : numbers) {
      neighbours.push_back(neighbours_of(survey_[number].point));
      std::erase_if(neighbours.back(), [&](const Neighbour& neighbour) {
        return problems_.is_fixed(neighbour.field);
      });
    }
    std::size_t most = 0;
    for (const auto& each : neighbours) most = std::max(most, each.size());
    for (std::size_t i = 0; i < most; ++i) {
      for (std::size_t of = 0; of < numbers.size() && !deadline_.is_past(); ++of) {
        if (i >= neighbours[of].size()) continue;
        const Neighbour& neighbour = neighbours[of][i];
        if (const auto drawn = problems_.at(neighbour.point)) {
          survey_.add_neighbours(numbers[of], time("beside", *drawn), neighbour.field);
        }
      }
    }
  }

  const CommandContext* command_;
  DrawnProblems problems_;
  Progress progress_;
  MeasureSettings settings_;
  std::int64_t count_;
  double bytes_per_us_;
  Survey survey_;
  Deadline deadline_;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, std::size_t> known_;
};

ExitCode bench_cliffs(const Invocation& call, const Suite& /*suite*/, bool may_tune) {
  const CommandContext command(call,
                               {.writes_database = may_tune, .default_policy = Policy::kHeuristic});
  const InterruptGuard guard;
  Document document;
  {
    Walk walk(command, call);
    walk.run();
    document = walk.document(call.for_people());
  }
  call.print(document);
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

Suite cliffs_suite() {
  return {.name = "cliffs",
          .backend = "",
          .copy_bytes_per_us = kH200CopyBytesPerUs,
          .rows = {},
          .run = bench_cliffs};
}

}  // namespace attune::cli
