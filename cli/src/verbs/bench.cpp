// `attune bench`: how fast the selected config is, beside the heuristics'.
#include <algorithm>
#include <limits>

#include <attune/tuner/policy.hpp>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "program/verb.hpp"
#include "suites/bench_suite.hpp"
#include "suites/measure.hpp"
#include "suites/suites.hpp"

namespace attune::cli {
namespace {

struct Contender {
  std::string name;
  Choice choice;
};

/// By their parameters: equal configs may differ in the bytes between them.
bool same_choice(const Choice& a, const Choice& b) {
  return a.kernel == b.kernel && a.kernel->params(a.config) == b.kernel->params(b.config);
}

/// What the chain chooses where nothing is stored and no config is given.
Choice untuned_choice(const CommandContext& command, const Target& target) {
  const PolicyScope scope(Policy::kHeuristic);
  Request request = command.request(target);
  request.config = nullptr;
  return command.context().select(target.problem, request);
}

/// What is selected, and the heuristic's choice: of the kernel that is the default, or with `all` of
/// every kernel.
std::vector<Contender> contenders(const CommandContext& command, const Target& target, bool all) {
  const Choice selected = command.context().select(target.problem, command.request(target));
  const Choice untuned = untuned_choice(command, target);
  std::vector<Contender> list{{str("selected (", to_string(selected.tier), ")"), selected}};
  for (const RegisteredKernel* kernel : command.competitors(target)) {
    const bool is_default = kernel->kernel.get() == untuned.kernel;
    if (!all && !is_default) continue;
    Choice choice = untuned;
    if (!is_default) {
      choice.kernel = kernel->kernel.get();
      choice.config = choice.kernel->erased_heuristic(target.problem, target.device->info());
    }
    const bool known = std::any_of(list.begin(), list.end(), [&](const Contender& other) {
      return same_choice(other.choice, choice);
    });
    if (!known) list.push_back({str("heuristic (", kernel->at.platform, ")"), choice});
  }
  return list;
}

void bench(const CommandContext& command, const Target& target, const Invocation& call,
           Table& table) {
  const Cases on = cases_to_rotate(*target.op, target.problem, *target.device, command.seed());
  const std::vector<Contender> list = contenders(command, target, call.options.flag("all"));
  std::vector<Launch> launches;
  launches.reserve(list.size());
  for (const Contender& contender : list)
    launches.emplace_back(on, contender.choice, *target.device);
  const std::vector<Timing> timings = measure(launches, measure_settings(call.options));
  const double flops = target.op->flops(target.problem);
  const double bytes = target.op->bytes(target.problem);
  for (std::size_t i = 0; i < list.size() && timings.front().median_us > 0; ++i) {
    const Timing& timing = timings[i];
    if (timing.samples == 0) continue;  // interrupted
    const Choice& choice = list[i].choice;
    constexpr double kPerGiga = 1e3;  // of a rate in 1/us
    table.add({target.op->name, target.text, list[i].name, choice.kernel->name(),
               config_text(*choice.kernel, choice.config), timing.median_us, timing.spread * 100,
               timing.samples, flops / timing.median_us / kPerGiga,
               bytes / timing.median_us / kPerGiga, timing.median_us / timings.front().median_us});
  }
}

ExitCode run(const Invocation& call) {
  const bool may_tune = call.options.text("policy") == "tune";
  if (const auto suite = call.options.text("suite")) {
    return bench_suite(call, find_suite(*suite), may_tune);
  }
  const CommandContext command(call, {.writes_database = may_tune, .default_policy = Policy::kDb});
  const std::vector<Target> targets = command.targets(call.words);
  Table table({"op", "problem", "choice", "kernel", "config", "median_us", "spread_percent",
               "samples", "gflop_per_s", "gb_per_s", "relative"});
  const InterruptGuard guard;
  {
    Progress progress(call.quiet);
    for (std::size_t i = 0; i < targets.size() && !interrupted(); ++i) {
      progress.update(str('[', i + 1, '/', targets.size(), "] ", targets[i].text));
      bench(command, targets[i], call, table);
    }
  }
  call.print(std::move(table));
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

Verb bench_verb() {
  return {
      .name = "bench",
      .summary = "time the selected config beside the heuristic's",
      .usage = {"bench OP SPEC... [--all]", "bench --suite NAME [WORD...]",
                "bench --suite cliffs [OP] [NAME=VALUE,...] [--seed N] [--budget TIME]"},
      .examples = {"bench gated_linear_attention T=512,2048 H=8 D=64 dtype=bf16",
                   "bench recurrent_attention T=512 H=8 D=64 --all -o md",
                   "bench recurrent_attention T=512 H=8 D=64 --platform simd --config tile_v=64",
                   "bench --suite h200 recurrent_decode gate=gk -o json",
                   "bench --suite cpu --threads 1,2,8 dtype=bf16",
                   "bench --suite serve mixed state=bf16",
                   "bench --suite cliffs dtype=f32 gate=gk,gv --seed 7 --problems 100"},
      .details =
          "Choices are timed in turns, so that a machine that gets slower or faster meets all "
          "alike. gflop_per_s and gb_per_s count the op's nominal operations and least traffic; "
          "relative is the time beside the selected choice's. Nothing is tuned (unless --policy "
          "tune says so).\n\n"
          "A suite is a list of problems with the times they must and should take; its rows that "
          "have every WORD as an op or a field are run. h200, models: a row of several ops is the sum of "
          "their times; floor_us is the least traffic at the speed of a copy there. cpu: "
          "ceilings are measured in the run; share is of the one that binds, speedup over a "
          "naive C++ loop, times_forward a backward pass in forward passes, scaling the time on "
          "one thread over that on all and ceiling_scaling how many times as fast the ceiling is "
          "on all; bounds says how many rows reach each bound, and which is the worst; samples "
          "during which another process had the cores are left out. Its --threads is a list, by "
          "default 1,2.\n\n"
          "serve times the steps of a serving engine on one layer: rows that decode one token or "
          "several (plain, with kept states, with replay), packed batches of rows and prompts on a "
          "pool of states, snapshots. ratio is the time over that of what is beside it, in turns: "
          "one token, the same parts run alone, dense states, none. The device is an accelerator "
          "where there is one, else the host with a smaller layer; floors are at 4.25 TB/s, on the "
          "host at the rate of a copy, and bounds are for an H200. A WORD is one of about's.\n\n"
          "cliffs draws its problems by --seed: recurrent attention of any shape and gates, both "
          "passes, with the fields that are given (a list: one of its values). Then it walks along "
          "each field from a few usual problems, and beside the worst. times_floor is the time, "
          "less 6 us for a launch on an accelerator, over that of the least traffic (1 us at "
          "least) at 4.25 TB/s, on the host at the rate of a copy; ratio compares a problem's "
          "with that of the same one with one field moved to its next value. --budget (3m) is for "
          "all of it, the heuristic chooses unless --policy says otherwise, and seed repeats a "
          "problem's lengths of packed sequences: bench OP SPEC --seed N. untuned draws likewise, "
          "tunes each problem (in its part of --budget, 5m, and 2.3 s at most; nothing is stored) "
          "and compares what the problem got without.",
      .options = {{"all", '\0', "", "the heuristic's choice of every kernel, not only of the best",
                   false},
                  {"suite", '\0', "NAME", "h200, models, cpu, serve, cliffs or untuned", false},
                  {"problems", '\0', "N", "random ones, of --suite cliffs (320) and untuned (60)",
                   false},
                  {"warmup", '\0', "N", "samples discarded, of each; default 3", false},
                  {"iters", '\0', "N", "most samples, of each; default 30", false}},
      .run = run};
}

}  // namespace attune::cli
