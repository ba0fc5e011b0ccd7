// What all kernels of this platform answer alike.
#pragma once

#include <tuple>

#include <attune/core/kernel.hpp>

namespace attune::cpu::reference {

/// Nothing to tune: one way to compute each op.
template <class KernelOp>
struct NoConfig {
  using Op = KernelOp;
  friend constexpr bool operator==(const NoConfig&, const NoConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

template <class KernelOp>
class ReferenceKernel : public Kernel<NoConfig<KernelOp>> {
 public:
  using Problem = typename KernelOp::Problem;
  using Args = typename KernelOp::Args;
  using Config = NoConfig<KernelOp>;

  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {
        "g",         "gamma",  "gk",        "gv",         "slots",          "packed",
        "h0",        "ht",     "pool",      "reverse",    "tokens",         "initial_slots",
        "replay",    "kept",   "state=f16", "state=bf16", "snapshot_every", "rounding=stochastic",
        "inclusive", "gk_sum", "gv_sum"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "cpu" ? Support::yes()
                                      : Support::no(refused::kDevice, "needs host memory");
  }
  Config heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
};

}  // namespace attune::cpu::reference
