#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include <attune/core/parallel_for.hpp>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/bench_suite.hpp"
#include "suites/host_ceilings.hpp"
#include "suites/host_samples.hpp"
#include "suites/measure.hpp"
#include "suites/naive_loop.hpp"
#include "suites/suite_bounds.hpp"

namespace attune::cli {
namespace {

// The ops of the suite.
constexpr std::string_view kForward = "recurrent_attention";
constexpr std::string_view kBackward = "recurrent_attention.backward";
constexpr std::string_view kDecode = "recurrent_decode";

constexpr double kPerGiga = 1e3;  // of a rate in 1/us

/// Whether arithmetic is the ceiling: no host does fewer operations in the time of a byte.
bool is_compute_bound(double flops, double bytes) {
  constexpr double kFlopsPerByte = 4;
  return flops >= kFlopsPerByte * bytes;
}

std::vector<int> thread_counts(const Options& options) {
  const auto text = options.text("threads");
  if (!text) return usable_cores() > 1 ? std::vector<int>{1, 2} : std::vector<int>{1};
  std::vector<int> counts;
  for (std::size_t first = 0; first <= text->size();) {
    const std::size_t comma = std::min(text->find(',', first), text->size());
    const char* const end = text->data() + comma;
    int count = 0;
    const auto [stop, error] = std::from_chars(text->data() + first, end, count);
    if (error != std::errc() || stop != end || count < 1 || count > usable_cores()) {
      throw UsageError(str("--threads '", *text, "': expected whole numbers from 1 to ",
                           usable_cores(), ", the cores there are, with commas between them"));
    }
    counts.push_back(count);
    first = comma + 1;
  }
  return counts;
}

/// The chain's choice for a problem, bound to tensors.
struct Selected {
  Selected(const CommandContext& command, const OpInfo& op, const AnyProblem& problem,
           const Device& host)
      : choice(command.context().select(problem, command.request(op, host))),
        cases(cases_to_rotate(op, problem, host, command.seed())),
        launch(cases, choice, host),
        work([this] { launch.time_us(1); }) {}
  Selected(const Selected&) = delete;
  Selected& operator=(const Selected&) = delete;

  Choice choice;
  Cases cases;
  Launch launch;
  HostWork work;
};

/// The forward pass of a problem of the backward one: what a training step runs before it.
AnyProblem forward_of(const OpInfo& forward, const OpInfo& backward, ProblemRef problem) {
  Params params;
  for (Param& param : parse_params(backward.text(problem, false), ' ')) {
    const bool known =
        std::any_of(forward.fields.begin(), forward.fields.end(),
                    [&](const FieldInfo& field) { return field.name == param.name; });
    if (known && param.name != "ht") params.push_back(std::move(param));
  }
  return forward.parse(std::move(params));
}

/// What the best of several ceilings at once reaches there: the one to be held against.
Ceiling best_of(std::vector<Ceiling> ceilings, const MeasureSettings& settings) {
  MeasureSettings few = settings;
  few.iters = 3;
  std::vector<HostWork> works;
  for (const Ceiling& ceiling : ceilings) works.push_back(ceiling.work);
  const HostRounds rounds = take_rounds(works, few);
  std::size_t best = 0;
  for (std::size_t i = 1; i < ceilings.size(); ++i) {
    if (median_of(rounds.us[i]) < median_of(rounds.us[best])) best = i;
  }
  return std::move(ceilings[best]);
}

/// The ceilings of one number of threads.
class Ceilings {
 public:
  explicit Ceilings(CeilingMemory& memory, int threads, const MeasureSettings& settings)
      : memory_(&memory), threads_(threads), settings_(settings) {}

  /// Which one binds `flops` and `bytes`. Half of the bytes are read, the other half written.
  Ceiling binding(double flops, double bytes, bool in_place, bool on_tiles) const {
    if (is_compute_bound(flops, bytes)) {
      const auto tiles = on_tiles ? tile_ceiling(cpu_device().info(), threads_) : std::nullopt;
      return tiles ? *tiles
                   : multiply_add_ceiling(yardsticks::loops_of_this_cpu().front(), threads_);
    }
    const auto footprint = std::min(static_cast<std::int64_t>(bytes / 2), memory_->bytes());
    if (in_place) return memory_->update(footprint, threads_);
    return best_of(memory_->copies(footprint, threads_), settings_);
  }

 private:
  CeilingMemory* memory_;
  int threads_;
  MeasureSettings settings_;
};

/// Instructions that wait for nothing. While the core's other hardware thread runs anything at all,
/// it takes turns at issuing, and this takes up to twice as long.
void issue_instructions(std::int64_t count) {
  constexpr std::int64_t kTogether = 64;
  for (std::int64_t i = 0; i < count; i += kTogether) asm volatile(".rept 64\n\tnop\n\t.endr");
}

/// What tells that others use the machine: instructions issued, multiply-adds, and bytes updated in
/// the second-level cache and in the third. On several threads each lasts a few times as long:
/// starting and joining them takes now one microsecond and now three.
std::vector<QuietProbe> quiet_probes(CeilingMemory& memory, const DeviceInfo& host, int threads) {
  const int lasts = threads == 1 ? 1 : 4;
  const std::int64_t l2 = std::max<std::int64_t>(host.l2_bytes, 1 << 18) * threads;
  const auto update = [&](std::int64_t bytes) {
    return memory.update(std::min(bytes, memory.bytes()), threads).work;
  };
  const yardsticks::Loops& loops = yardsticks::loops_of_this_cpu().front();
  const auto issue = [threads, lasts] {
    parallel_for(threads, threads, [&](std::int64_t) { issue_instructions(300'000 * lasts); });
  };
  const auto update_l2 = [work = update(l2 / 4), lasts] {
    for (int i = 0; i < lasts; ++i) work();
  };
  return {QuietProbe(issue), QuietProbe(multiply_add_ceiling(loops, threads, 10'000 * lasts).work),
          QuietProbe(update_l2), QuietProbe(update(2 * l2))};
}

/// Cores that a row is timed on.
struct Cores {
  const Device* host;
  Ceilings ceilings;
  std::vector<QuietProbe> probes;
};

// ---- one row ----

struct RowResult {
  Timing timing;
  double tokens = 0;  // of all sequences
  double kept = 0;
  double flops = 0, bytes = 0;
  std::string ceiling;
  double share = 0;
  std::optional<double> naive_us, speedup, forward_us, times_forward;
  std::optional<double> scaling;          // time on one thread over that on all
  std::optional<double> ceiling_scaling;  // the ceiling's rate on all over that on one
  std::string kernel, config;
};

/// Whether the kernel would not take the problem on the same host without AMX.
bool runs_on_tiles(const ErasedKernel& kernel, ProblemRef problem, const DeviceInfo& host) {
  DeviceInfo without = host;
  std::erase(without.features, "amx_bf16");
  return !kernel.erased_supports(problem, without);
}

/// `alone` is null where `host` has one core.
RowResult time_row(const CommandContext& command, const Target& target, Cores& cores,
                   const Cores* alone, const MeasureSettings& settings) {
  const Device& host = *cores.host;
  const OpInfo& op = *target.op;
  Selected selected(command, op, target.problem, host);
  RowResult result;
  const Params fields = parse_params(op.text(target.problem, false), ' ');
  result.tokens = static_cast<double>(field_or_one(fields, "B") * field_or_one(fields, "T"));
  result.flops = op.flops(target.problem);
  result.bytes = op.bytes(target.problem);
  const bool in_place = op.name == kDecode;
  const bool on_tiles = runs_on_tiles(*selected.choice.kernel, target.problem, host.info());
  const auto ceiling_of = [&](const Ceilings& ceilings) {
    return ceilings.binding(result.flops, result.bytes, in_place, on_tiles);
  };
  const Ceiling ceiling = ceiling_of(cores.ceilings);
  std::vector<HostWork> works{selected.work, ceiling.work};

  const bool backward = op.name == kBackward;
  std::optional<Selected> forward;
  std::optional<NaiveLoop> naive;
  if (backward) {
    const OpInfo& forward_op = command.op(kForward);
    forward.emplace(command, forward_op, forward_of(forward_op, op, target.problem), host);
    works.push_back(forward->work);
  } else {
    naive.emplace(fields);
    works.push_back(naive->work(host.info().cores));
  }
  std::optional<Selected> selected_alone;
  Ceiling ceiling_alone;
  if (alone != nullptr) {
    selected_alone.emplace(command, op, target.problem, *alone->host);
    ceiling_alone = ceiling_of(alone->ceilings);
    works.insert(works.end(), {selected_alone->work, ceiling_alone.work});
  }
  const HostRounds rounds = take_rounds(works, settings, cores.probes);
  if (rounds.us.front().empty()) return result;  // interrupted

  result.timing = summarize(rounds.us[0]);
  result.kept = rounds.kept;
  result.ceiling = ceiling.name;
  const double amount = is_compute_bound(result.flops, result.bytes) ? result.flops : result.bytes;
  result.share = amount / ceiling.amount * median_ratio(rounds.us[1], rounds.us[0]);
  const double beside_us = median_of(rounds.us[2]);
  if (backward) {
    result.forward_us = beside_us;
    result.times_forward = median_ratio(rounds.us[0], rounds.us[2]);
  } else {
    result.naive_us = beside_us;
    result.speedup = median_ratio(rounds.us[2], rounds.us[0]);
  }
  if (alone != nullptr) {
    result.scaling = median_ratio(rounds.us[3], rounds.us[0]);
    result.ceiling_scaling =
        ceiling.amount / ceiling_alone.amount * median_ratio(rounds.us[4], rounds.us[1]);
  }
  result.kernel = selected.choice.kernel->name();
  result.config = config_text(*selected.choice.kernel, selected.choice.config);
  return result;
}

Cell if_any(const std::optional<double>& value) { return value ? Cell(*value) : Cell(); }

std::vector<Reading> readings_of(const SuiteRow& row, int threads, const RowResult& result) {
  using enum Reading::Sense;
  const Bound scaling = threads == 2 ? row.scaling : Bound{};
  return {{"share", row.share, kAtLeast, result.share},
          {"speedup", row.speedup, kAtLeast, result.speedup.value_or(0)},
          {"times_forward", row.times_forward, kAtMost, result.times_forward.value_or(0)},
          {"scaling", scaling, kAtLeast, result.scaling.value_or(0)}};
}

void add_row(const SuiteRow& row, int threads, const RowResult& result,
             std::span<const Reading> readings, Table& table) {
  const double us = result.timing.median_us;
  std::vector<Cell> cells{row.about,
                          ops_text(row),
                          row.spec,
                          threads,
                          us,
                          1e3 * us / result.tokens,
                          100 * result.timing.spread,
                          result.timing.samples,
                          100 * result.kept,
                          result.flops / us / kPerGiga,
                          result.bytes / us / kPerGiga,
                          result.ceiling,
                          result.share,
                          if_any(result.naive_us),
                          if_any(result.speedup),
                          if_any(result.forward_us),
                          if_any(result.times_forward),
                          if_any(result.scaling),
                          if_any(result.ceiling_scaling)};
  for (const Reading& reading : readings) {
    cells.push_back(Cell::unless_zero(reading.bound.must));
    cells.push_back(Cell::unless_zero(reading.bound.goal));
  }
  cells.insert(cells.end(), {verdict(readings), result.kernel, result.config});
  table.add(std::move(cells));
}

Table rows_table() {
  return Table({"about",
                "op",
                "problem",
                "threads",
                "median_us",
                "ns_per_token",
                "spread_percent",
                "samples",
                "kept_percent",
                "gflop_per_s",
                "gb_per_s",
                "ceiling",
                "share",
                "naive_us",
                "speedup",
                "forward_us",
                "times_forward",
                "scaling",
                "ceiling_scaling",
                "must_share",
                "goal_share",
                "must_speedup",
                "goal_speedup",
                "must_times_forward",
                "goal_times_forward",
                "must_scaling",
                "goal_scaling",
                "reached",
                "kernel",
                "config"});
}

// ---- the ceilings' own table ----

/// In a core's second cache, in the last one, and in neither.
std::vector<std::int64_t> footprints(const DeviceInfo& host) {
  constexpr std::int64_t kMib = 1 << 20;
  const std::int64_t l2 = std::max(host.l2_bytes, kMib / 4);
  const std::int64_t l3 = std::max(host.l3_bytes, 4 * l2);
  return {l2 / 4, std::min(l3 / 8, 8 * kMib), 256 * kMib};
}

void add_ceilings(CeilingMemory& memory, const DeviceInfo& host, int threads,
                  const MeasureSettings& settings, Table& table) {
  const auto add = [&](const Ceiling& ceiling, bool flops, std::int64_t footprint) {
    const HostRounds rounds = take_rounds(std::span(&ceiling.work, 1), settings);
    if (rounds.us.front().empty()) return;  // interrupted
    const double rate = ceiling.amount / median_of(rounds.us.front()) / kPerGiga;
    table.add({ceiling.name, threads, footprint == 0 ? Cell() : Cell(footprint >> 10),
               flops ? Cell(rate) : Cell(), flops ? Cell() : Cell(rate), 100 * rounds.kept});
  };
  for (const yardsticks::Loops& loops : yardsticks::loops_of_this_cpu()) {
    add(multiply_add_ceiling(loops, threads), true, 0);
  }
  if (const auto tiles = tile_ceiling(cpu_device().info(), threads)) add(*tiles, true, 0);
  for (const std::int64_t bytes : footprints(host)) {
    add(memory.update(bytes, threads), false, bytes);
    for (const Ceiling& copy : memory.copies(bytes, threads)) add(copy, false, bytes);
  }
}

}  // namespace

ExitCode bench_host_suite(const Invocation& call, const Suite& suite, bool may_tune) {
  const std::vector<SuiteRow> rows = rows_with(suite, call.words);
  const std::vector<int> counts = thread_counts(call.options);
  const CommandContext command(call, {.writes_database = may_tune,
                                      .default_policy = Policy::kDb,
                                      .backend = std::string(suite.backend),
                                      .lists_threads = true});
  for (const std::string_view op : {kForward, kBackward, kDecode}) command.op(op);
  const MeasureSettings settings = measure_settings(call.options);
  MeasureSettings brief = settings;
  brief.budget_us /= 10;
  Table ceilings(
      {"ceiling", "threads", "footprint_kib", "gflop_per_s", "gb_per_s", "kept_percent"});
  Table table = rows_table();
  BoundsReached bounds;
  const InterruptGuard guard;
  {
    Progress progress(call.quiet);
    CeilingMemory memory(footprints(cpu_device().info()).back());
    const auto one_core = make_cpu_device({.most = 1});
    const Cores alone{one_core.get(), Ceilings(memory, 1, brief), {}};
    std::vector<std::unique_ptr<const Device>>
        hosts;  // each stays where it is: the chain knows devices by address
    for (const int threads : counts) {
      const Device& host = *hosts.emplace_back(make_cpu_device({.most = threads}));
      Cores cores{&host, Ceilings(memory, threads, brief),
                  quiet_probes(memory, host.info(), threads)};
      progress.update(str("ceilings, threads ", threads));
      add_ceilings(memory, host.info(), threads, brief, ceilings);
      for (std::size_t i = 0; i < rows.size() && !interrupted(); ++i) {
        progress.update(str('[', i + 1, '/', rows.size(), "] ", ops_text(rows[i]), ' ',
                            rows[i].spec, " threads ", threads));
        for (const Target& target : command.targets(words_of(rows[i], rows[i].ops.front()))) {
          const RowResult result =
              time_row(command, target, cores, threads > 1 ? &alone : nullptr, settings);
          if (result.timing.samples == 0) continue;  // interrupted
          const std::vector<Reading> readings = readings_of(rows[i], threads, result);
          for (const Reading& reading : readings) {
            bounds.add(rows[i].about, threads, rows[i].spec, reading);
          }
          add_row(rows[i], threads, result, readings, table);
        }
      }
    }
  }
  call.print(Document{{.name = "ceilings", .table = std::move(ceilings)},
                      {.name = "rows", .table = std::move(table)},
                      {.name = "bounds", .table = bounds.table()}});
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace attune::cli
