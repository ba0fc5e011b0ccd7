// The workspace of the chunked backward pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunk_wgmma/backward/chunk_backward_config.hpp"
#include "cuda/chunk_wgmma/backward/params.hpp"

namespace attune::cuda::chunk_backward {

/// Channels of a tile: 64, or 128.
int tile_channels(const ops::RecurrentAttentionProblem& problem);
/// Parts that K or V is taken in.
int parts_of(std::int64_t channels);

std::size_t chunk_backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                           const ChunkBackwardConfig& config);

/// Points the params at their parts of it.
void place_workspace(ChunkBackwardParams& params, const ops::RecurrentAttentionProblem& problem,
                     const ChunkBackwardConfig& config, std::byte* workspace);

}  // namespace attune::cuda::chunk_backward
