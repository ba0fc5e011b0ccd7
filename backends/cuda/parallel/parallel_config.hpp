// What may be tuned in the kernels of the parallel form.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>

namespace attune::cuda::parallel {

/// Of either pass.
template <class KernelOp>
struct ParallelConfig {
  using Op = KernelOp;
  int warps = 4;  // of a block, a token each
  friend constexpr bool operator==(const ParallelConfig&, const ParallelConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("warps", &ParallelConfig::warps, {1, 2, 4, 8})};
  }
};

}  // namespace attune::cuda::parallel
