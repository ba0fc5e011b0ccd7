// Where the summaries of sequences go (ops/state_summary_op.hpp, ops/summarising_walk.hpp), as
// CUDA kernels take it.
#pragma once

#include "cuda/chunks/views.hpp"

namespace attune::ops {
struct SummaryOutputs;
}

namespace attune::cuda {

struct SummaryViews {
  StateView final_state;   // those of a sequence without a slot are not wanted
  StateView key_sums;      // of log decays, as key_sums_view() has them; may be absent
  ConstStateView initial;  // that final_state includes; may be absent
  float scale = 1;         // of what tokens add
};

SummaryViews summary_views(const ops::SummaryOutputs& to);

}  // namespace attune::cuda
