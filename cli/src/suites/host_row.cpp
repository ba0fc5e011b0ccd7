#include "suites/host_row.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <attune/core/parallel_for.hpp>

#include "suites/naive_loop.hpp"

namespace attune::cli {
namespace {

/// Whether arithmetic is the ceiling: no host does fewer operations in the time of a byte.
bool is_compute_bound(double flops, double bytes) {
  constexpr double kFlopsPerByte = 4;
  return flops >= kFlopsPerByte * bytes;
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

/// Instructions that wait for nothing. While the core's other hardware thread runs anything at all,
/// it takes turns at issuing, and this takes up to twice as long.
void issue_instructions(std::int64_t count) {
  constexpr std::int64_t kTogether = 64;
  for (std::int64_t i = 0; i < count; i += kTogether) asm volatile(".rept 64\n\tnop\n\t.endr");
}

/// Whether the kernel would not take the problem on the same host without AMX.
bool runs_on_tiles(const ErasedKernel& kernel, ProblemRef problem, const DeviceInfo& host) {
  DeviceInfo without = host;
  std::erase(without.features, "amx_bf16");
  return !kernel.erased_supports(problem, without);
}

/// What takes turns in a row's rounds, each at its place.
class RowWorks {
 public:
  RowWorks(const CommandContext& command, const Target& target, const Cores& cores,
           const Cores* alone)
      : selected_(command, *target.op, target.problem, *cores.host) {
    const OpInfo& op = *target.op;
    const Params fields = parse_params(op.text(target.problem, false), ' ');
    row_.tokens = static_cast<double>(field_or_one(fields, "B") * field_or_one(fields, "T"));
    row_.flops = op.flops(target.problem);
    row_.bytes = op.bytes(target.problem);
    row_.kernel = selected_.choice.kernel->name();
    row_.config = config_text(*selected_.choice.kernel, selected_.choice.config);

    const bool on_tiles =
        runs_on_tiles(*selected_.choice.kernel, target.problem, cores.host->info());
    const auto ceiling_of = [&](const HostCeilings& ceilings) {
      return ceilings.binding(row_.flops, row_.bytes, op.name == kDecodeOp, on_tiles);
    };
    ceiling_ = ceiling_of(cores.ceilings);
    row_.ceiling = ceiling_.name;
    if (op.name == kBackwardOp) {
      const OpInfo& forward_op = command.op(kForwardOp);
      forward_.emplace(command, forward_op, forward_of(forward_op, op, target.problem),
                       *cores.host);
    } else {
      naive_.emplace(fields);
    }
    works_ = {selected_.work, ceiling_.work,
              forward_ ? forward_->work : naive_->work(cores.host->info().cores)};
    if (alone == nullptr) return;
    alone_.emplace(command, op, target.problem, *alone->host);
    ceiling_alone_ = ceiling_of(alone->ceilings);
    works_.insert(works_.end(), {alone_->work, ceiling_alone_.work});
  }

  const std::vector<HostWork>& works() const { return works_; }

  HostRow row_of(const HostRounds& rounds) const {
    HostRow row = row_;
    const auto ratio = [&](Place a, Place b) { return median_ratio(rounds.us[a], rounds.us[b]); };
    row.timing = summarize(rounds.us[kOp]);
    row.kept = rounds.kept;
    const double amount = is_compute_bound(row.flops, row.bytes) ? row.flops : row.bytes;
    row.share = amount / ceiling_.amount * ratio(kCeiling, kOp);
    const double beside_us = median_of(rounds.us[kBeside]);
    if (forward_) {
      row.forward_us = beside_us;
      row.times_forward = ratio(kOp, kBeside);
    } else {
      row.naive_us = beside_us;
      row.speedup = ratio(kBeside, kOp);
    }
    if (alone_) {
      row.scaling = ratio(kOpAlone, kOp);
      row.ceiling_scaling =
          ceiling_.amount / ceiling_alone_.amount * ratio(kCeilingAlone, kCeiling);
    }
    return row;
  }

 private:
  enum Place : std::size_t { kOp, kCeiling, kBeside, kOpAlone, kCeilingAlone };

  HostRow row_;  // what is known before the rounds
  Selected selected_;
  Ceiling ceiling_;
  std::optional<Selected> forward_;  // of a backward pass, or
  std::optional<NaiveLoop> naive_;
  std::optional<Selected> alone_;
  Ceiling ceiling_alone_;
  std::vector<HostWork> works_;
};

}  // namespace

Ceiling HostCeilings::binding(double flops, double bytes, bool in_place, bool on_tiles) const {
  if (is_compute_bound(flops, bytes)) {
    const auto tiles = on_tiles ? tile_ceiling(cpu_device().info(), threads_) : std::nullopt;
    return tiles ? *tiles : multiply_add_ceiling(yardsticks::loops_of_this_cpu().front(), threads_);
  }
  const auto footprint = std::min(static_cast<std::int64_t>(bytes / 2), memory_->bytes());
  if (in_place) return memory_->update(footprint, threads_);
  return best_of(memory_->copies(footprint, threads_), settings_);
}

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

HostRow time_host_row(const CommandContext& command, const Target& target, Cores& cores,
                      const Cores* alone, const MeasureSettings& settings) {
  const RowWorks turns(command, target, cores, alone);
  const HostRounds rounds = take_rounds(turns.works(), settings, cores.probes);
  return rounds.us.front().empty() ? HostRow{} : turns.row_of(rounds);
}

}  // namespace attune::cli
