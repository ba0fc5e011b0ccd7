// What a walk's blocks leave to be added up, one launch behind it: dk and dv over the query heads
// that share rows of them, dg and dgamma over the blocks that have key channels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/chunks/plane_sums.hpp"

namespace attune::cuda::window {

struct Sums {
  // Planes of those that are not wanted are null, and the data of gamma.out.
  PlaneSumParams keys, values, shared;
  GammaGradient gamma;  // of terms [N, H, gamma_terms]
  std::int64_t gamma_terms = 0;

  bool any() const {
    return keys.planes != nullptr || values.planes != nullptr || shared.planes != nullptr ||
           gamma.out.data != nullptr;
  }
};

/// T: of dk and dv.
template <class T>
void launch_sums(const Sums& sums, cudaStream_t stream);

}  // namespace attune::cuda::window
