// `attune bench --suite untuned`: what a problem gets that nobody tuned, beside what its own tuning
// finds.
#include <algorithm>
#include <cmath>
#include <new>

#include "drawn/drawn_problems.hpp"
#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/measure.hpp"
#include "suites/suites.hpp"

namespace attune::cli {
namespace {

constexpr double kMostBytes = 2.5e8;
constexpr std::chrono::milliseconds kMostForOne{3000};
constexpr double kNear = 1.1;

struct Comparison {
  std::string problem;
  double ratio = 1;  // untuned / tuned
};

class Comparisons {
 public:
  Comparisons(const CommandContext& command, const Invocation& call)
      : command_(&command),
        problems_(command, call, kMostBytes),
        deadline_(call, std::chrono::minutes(5)),
        progress_(call.quiet),
        count_(call.options.integer("problems", 1, kMaxProblems).value_or(60)) {
    measure_ = measure_settings(call.options);
    if (!call.options.flag("iters")) measure_.iters = 15;
    measure_.budget_us = 2e5;
  }

  void run() {
    for (std::int64_t i = 0; i < count_ && !deadline_.is_past(); ++i) {
      const DrawnProblem drawn = problems_.draw(static_cast<std::uint64_t>(i));
      progress_.update(
          str('[', i + 1, '/', count_, "] ", drawn.target.op->name, ' ', drawn.target.text));
      try {
        compare(drawn, std::min(kMostForOne, deadline_.left() / (count_ - i)));
      } catch (const Unsupported&) {  // `attune explain` says why
        ++failed_;
      } catch (const std::bad_alloc&) {
        ++failed_;
      }
    }
  }

  Document document() const {
    return {{.name = "summary", .table = summary(), .record = true},
            {.name = "problems", .table = table_}};
  }

 private:
  /// What the tuner leaves of the time is for comparing.
  Tuner::Settings tuner_settings(const DrawnProblem& drawn,
                                 std::chrono::milliseconds budget) const {
    Tuner::Settings settings;
    settings.budget = budget * 3 / 4;
    settings.seed = drawn.point.seed;
    settings.stop = interrupted;
    return settings;
  }

  void compare(const DrawnProblem& drawn, std::chrono::milliseconds budget) {
    const Target& target = drawn.target;
    const Choice untuned = command_->context().select(target.problem, command_->request(target));
    const TuneResult result =
        Tuner(tuner_settings(drawn, budget))
            .tune({.op = target.op,
                   .problem = target.problem,
                   .device = target.device,
                   .kernels = command_->competitors(target),
                   .oracle = find_oracle(command_->registry(), target.op->name, *target.device),
                   .incumbent = {untuned.kernel, untuned.config}});
    if (result.winner < 0) return;
    const Candidate& winner = result.trials[static_cast<std::size_t>(result.winner)].candidate;
    Choice tuned;
    tuned.kernel = winner.kernel;
    tuned.config = winner.config;
    const bool same = choice_text(tuned) == choice_text(untuned);
    const Cases on = cases_to_rotate(*target.op, target.problem, *target.device, drawn.point.seed);
    std::vector<Launch> launches;
    launches.emplace_back(on, untuned, *target.device);
    if (!same) launches.emplace_back(on, tuned, *target.device);
    const std::vector<Timing> timings = measure(launches, measure_);
    if (timings.back().samples == 0) return;  // interrupted
    const double untuned_us = timings.front().median_us, tuned_us = timings.back().median_us;
    const std::string problem = str(target.op->name, ' ', target.text);
    complete_ += result.complete ? 1 : 0;
    done_.push_back({problem, untuned_us / tuned_us});
    table_.add({target.op->name, target.text, drawn.point.seed, untuned_us / tuned_us, untuned_us,
                tuned_us, result.complete, to_string(untuned.tier), choice_text(untuned),
                choice_text(tuned)});
  }

  Table summary() const {
    Table table({"problems", "near_tuned", "percent", "mean_ratio", "worst_ratio", "worst_problem",
                 "tuned_to_the_end", "failed"});
    if (done_.empty()) return table;
    double logs = 0;
    for (const Comparison& each : done_) logs += std::log(std::max(each.ratio, 1.0));
    const auto near =
        std::ranges::count_if(done_, [](const Comparison& each) { return each.ratio <= kNear; });
    const Comparison& worst = *std::ranges::max_element(done_, {}, &Comparison::ratio);
    const auto count = static_cast<double>(done_.size());
    table.add({done_.size(), near, 100 * static_cast<double>(near) / count, std::exp(logs / count),
               worst.ratio, worst.problem, complete_, failed_});
    return table;
  }

  const CommandContext* command_;
  DrawnProblems problems_;
  Deadline deadline_;
  Progress progress_;
  std::int64_t count_;
  MeasureSettings measure_;
  std::vector<Comparison> done_;
  std::int64_t complete_ = 0;
  std::int64_t failed_ = 0;  // no kernel, or no memory
  Table table_{{"op", "problem", "seed", "ratio", "untuned_us", "tuned_us", "tuned_to_the_end",
                "tier", "untuned", "tuned"}};
};

ExitCode bench_untuned(const Invocation& call, const Suite&, bool may_tune) {
  if (may_tune) throw UsageError("--policy tune: nothing would be untuned");
  const CommandContext command(call, {.default_policy = Policy::kDb});
  const InterruptGuard guard;
  Document document;
  {
    Comparisons comparisons(command, call);
    comparisons.run();
    document = comparisons.document();
  }
  call.print(document);
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

Suite untuned_suite() {
  return {.name = "untuned", .backend = "", .rows = {}, .run = bench_untuned};
}

}  // namespace attune::cli
