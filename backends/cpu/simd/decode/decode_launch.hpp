// From the op's arguments to the decode kernel's, and to tasks on threads.
//
// Tasks write disjoint outputs and states and a sum over K is never split, so results depend
// neither on the number of threads nor on tile_v. Denormals count as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_decode_op.hpp>

#include "decode_config.hpp"

namespace attune::cpu::simd {

/// Tasks of a launch, (row, head, tile of V); its threads are never more.
std::int64_t decode_task_count(const ops::RecurrentDecodeProblem& problem,
                               const DecodeConfig& config);

std::size_t decode_workspace_bytes(const ops::RecurrentDecodeProblem& problem,
                                   const DecodeConfig& config);

/// `workspace` has at least decode_workspace_bytes(), aligned to 64. Throws InvalidArgument, before
/// anything is written, when a row's slot is not in the pool.
void launch_decode(const ops::RecurrentDecodeProblem& problem, const ops::RecurrentDecodeArgs& args,
                   const DecodeConfig& config, std::span<std::byte> workspace);

}  // namespace attune::cpu::simd
