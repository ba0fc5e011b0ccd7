// What the kernels that walk chunks with mma.sync share on the host: their parameters, and into how
// many segments a sequence is cut.
#pragma once

#include <cstdint>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "launch.hpp"

namespace attune::cuda {

inline constexpr int kMostSegments = 16;                            // the axes' last
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;  // positions are 32 bits

/// Blocks of `values` value channels.
std::int64_t value_tiles(const ops::RecurrentAttentionProblem& problem, int values);

/// All parameters but those of the segments' workspace.
ChunkMmaParams walk_params(const ops::RecurrentAttentionProblem& problem,
                           const ops::RecurrentAttentionArgs& args, int values, int stages,
                           int segments);

/// Blocks that a device has room for at once: as many a multiprocessor as there is memory for, and
/// `by_registers` at most.
std::int64_t room_for_blocks(const DeviceInfo& device, std::int64_t block_bytes, int by_registers);

/// As many segments as there is room for where `blocks` blocks walk whole sequences, each of no
/// fewer tokens than are worth a state's way there and back. How long sequences are that lie packed
/// is not known here: their mean counts.
int segments_for(const ops::RecurrentAttentionProblem& problem, std::int64_t blocks,
                 std::int64_t room, std::int64_t least_tokens);

}  // namespace attune::cuda
