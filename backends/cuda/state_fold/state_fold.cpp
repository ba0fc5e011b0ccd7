#include <optional>
#include <tuple>

#include <attune/core/kernel.hpp>
#include <attune/ops/state_fold_op.hpp>

#include "cuda/kernels.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/state_fold/launch.hpp"

namespace attune::cuda::state_fold {
namespace {

using Problem = ops::StateFoldProblem;
using Args = ops::StateFoldArgs;

/// Nothing to tune: a launch reads each state once, and memory sets its pace.
struct StateFoldConfig {
  using Op = ops::StateFold;
  friend constexpr bool operator==(const StateFoldConfig&, const StateFoldConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

ConstStateView initial_states(const Problem& problem, const Args& args) {
  ConstStateView view = state_view(args.initial_state);
  if (args.initial_state) view.slots = slots_view(*args.initial_slots, problem.F);
  return view;
}

StateFoldParams params_of(const Problem& problem, const Args& args) {
  return {
      .targets = problem.F,
      .summaries = problem.M,
      .folds = problem.L,
      .heads = problem.H,
      .keys = problem.K,
      .values = problem.V,
      .added = state_view(std::optional(args.final_state)),
      .key_logs = args.gk_sum ? key_sums_view<ConstStateView>(*args.gk_sum) : ConstStateView{},
      .value_logs = args.gv_sum ? value_sums_view<ConstStateView>(*args.gv_sum) : ConstStateView{},
      .initial = initial_states(problem, args),
      .offsets = indices_view(args.fold_offsets),
      .order = indices_view(args.fold_order),
      .folded = state_view(std::optional(args.folded))};
}

class StateFoldKernel final : public Kernel<StateFoldConfig> {
 public:
  using Config = StateFoldConfig;

  std::string_view name() const noexcept override { return "cuda.state_fold"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override { return {"gk_sum", "gv_sum", "h0"}; }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "gpu" ? Support::yes()
                                      : Support::no(refused::kDevice, "needs a gpu");
  }
  Config heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.folded.device.index);
    launch_state_fold(params_of(problem, args), static_cast<cudaStream_t>(site.stream));
  }
};

}  // namespace
}  // namespace attune::cuda::state_fold

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_state_fold() {
  return std::make_unique<state_fold::StateFoldKernel>();
}
