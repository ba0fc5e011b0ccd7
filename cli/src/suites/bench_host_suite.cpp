#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/bench_suite.hpp"
#include "suites/host_row.hpp"
#include "suites/suite_bounds.hpp"

namespace attune::cli {
namespace {

constexpr double kPerGiga = 1e3;  // of a rate in 1/us

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

Cell if_any(const std::optional<double>& value) { return value ? Cell(*value) : Cell(); }

std::vector<Reading> readings_of(const SuiteRow& row, int threads, const HostRow& result) {
  using enum Reading::Sense;
  const Bound scaling = threads == 2 ? row.scaling : Bound{};
  return {{"share", row.share, kAtLeast, result.share},
          {"speedup", row.speedup, kAtLeast, result.speedup.value_or(0)},
          {"times_forward", row.times_forward, kAtMost, result.times_forward.value_or(0)},
          {"scaling", scaling, kAtLeast, result.scaling.value_or(0)}};
}

void add_row(const SuiteRow& row, int threads, const HostRow& result,
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
  for (const std::string_view op : {kForwardOp, kBackwardOp, kDecodeOp}) command.op(op);
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
    const Cores alone{one_core.get(), HostCeilings(memory, 1, brief), {}};
    std::vector<std::unique_ptr<const Device>>
        hosts;  // each stays where it is: the chain knows devices by address
    for (const int threads : counts) {
      const Device& host = *hosts.emplace_back(make_cpu_device({.most = threads}));
      Cores cores{&host, HostCeilings(memory, threads, brief),
                  quiet_probes(memory, host.info(), threads)};
      progress.update(str("ceilings, threads ", threads));
      add_ceilings(memory, host.info(), threads, brief, ceilings);
      for (std::size_t i = 0; i < rows.size() && !interrupted(); ++i) {
        progress.update(str('[', i + 1, '/', rows.size(), "] ", ops_text(rows[i]), ' ',
                            rows[i].spec, " threads ", threads));
        for (const Target& target : command.targets(words_of(rows[i], rows[i].ops.front()))) {
          const HostRow result =
              time_host_row(command, target, cores, threads > 1 ? &alone : nullptr, settings);
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
