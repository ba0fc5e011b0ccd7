// Which shapes of a walk are legal for a problem, and which are worth a try.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/fused_recurrent/walk_layout.hpp"

namespace attune::cuda {

/// What a walk's shape depends on.
struct WalkExtents {
  std::int64_t heads = 0;  // of all sequences
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  int gates = 0;  // ChannelGates
  bool exact = false;
};

/// Where the rows of the state are K's channels.
int channel_gates(const ops::RecurrentAttentionProblem& problem);

Support needs_gpu(const DeviceInfo& device);

/// A shape is legal when a block has the threads and shared memory for it. One that is larger than
/// the state does no harm.
Support walk_fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device);

WalkShape heuristic_shape(const WalkExtents& extents, const DeviceInfo& device);

/// At most about a dozen; all fit.
std::vector<WalkShape> candidate_shapes(const WalkExtents& extents, const DeviceInfo& device);

}  // namespace attune::cuda
