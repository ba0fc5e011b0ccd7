// What the kernel of state_fold is given.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda::state_fold {

/// Indices that would lead outside of a tensor are clamped.
struct StateFoldParams {
  std::int64_t targets = 0;    // F
  std::int64_t summaries = 0;  // M
  std::int64_t folds = 0;      // L
  std::int64_t heads = 0;
  std::int64_t keys = 0;
  std::int64_t values = 0;

  ConstStateView added;     // final_state
  ConstStateView key_logs;  // gk_sum and gv_sum, or none
  ConstStateView value_logs;
  ConstStateView initial;  // by slot of a target, or none
  IndicesView offsets;
  IndicesView order;
  StateView folded;
};

void launch_state_fold(const StateFoldParams& params, cudaStream_t stream);

}  // namespace attune::cuda::state_fold
