// From the op's arguments to the chunked backward kernel's, and to tasks on threads.
//
// A task is a sequence, a kv head and a part of the query heads that share it: its heads add to dk
// and dv one after the other, and the parts are added up in their order at the end. How many parts
// there are is a config's, so results do not depend on the number of threads. Denormals count as
// zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_backward_config.hpp"

namespace attune::cpu::simd {

/// How many parts the heads of a group are cut into.
std::int64_t chunk_backward_parts(const ops::RecurrentAttentionProblem& problem,
                                  const ChunkBackwardConfig& config);

std::size_t chunk_backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                           const ChunkBackwardConfig& config);

/// `workspace` has at least chunk_backward_workspace_bytes(), aligned to 64.
void launch_chunk_backward(const ops::RecurrentAttentionProblem& problem,
                           const ops::RecurrentAttentionBackwardArgs& args,
                           const ChunkBackwardConfig& config, std::span<std::byte> workspace);

}  // namespace attune::cpu::simd
