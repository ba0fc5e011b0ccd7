#include <cmath>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/state_fold_op.hpp>

#include "cpu/kernels.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::StateFold;

/// Row [m, h] of a tensor of log decays; zeros where there is none.
std::vector<double> logs_of(const std::optional<ConstTensorView>& sums, std::int64_t m,
                            std::int64_t h, std::int64_t channels) {
  std::vector<double> row(static_cast<std::size_t>(channels), 0.0);
  if (sums) load_row(*sums, {m, h}, row);
  return row;
}

void fold_head(const StateFold::Problem& problem, const StateFold::Args& args, std::int64_t target,
               std::int64_t head) {
  const std::int64_t slot = problem.h0 ? load_integer(*args.initial_slots, target) : -1;
  const auto from = slot < 0 ? std::nullopt : args.initial_state;
  std::vector<double> state = load_state(from, slot, head, problem.K, problem.V);
  const std::int64_t end = load_integer(args.fold_offsets, target + 1);
  for (std::int64_t at = load_integer(args.fold_offsets, target); at < end; ++at) {
    const std::int64_t m = load_integer(args.fold_order, at);
    const std::vector<double> added = load_state(args.final_state, m, head, problem.K, problem.V);
    const std::vector<double> keys = logs_of(args.gk_sum, m, head, problem.K);
    const std::vector<double> values = logs_of(args.gv_sum, m, head, problem.V);
    for (std::size_t i = 0, at_state = 0; i < keys.size(); ++i) {
      for (std::size_t j = 0; j < values.size(); ++j, ++at_state) {
        const double decay = std::exp(keys[i] + values[j]);
        state[at_state] = decay * state[at_state] + added[at_state];
      }
    }
  }
  store_state(args.folded, target, head, state);
}

/// One task a target and head.
class StateFoldKernel final : public ReferenceKernel<StateFold> {
 public:
  std::string_view name() const noexcept override { return "reference.state_fold"; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    parallel_for(problem.F * problem.H, usable_cores(), [&](std::int64_t task) {
      fold_head(problem, args, task / problem.H, task % problem.H);
    });
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_state_fold() {
  return std::make_unique<StateFoldKernel>();
}

}  // namespace attune::cpu::reference
