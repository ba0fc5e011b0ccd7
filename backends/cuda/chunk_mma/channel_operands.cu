#include <algorithm>

#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/chunk_mma/log2_sum.cuh"
#include "cuda/chunks/segment_walk.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::chunk_mma {
inline namespace channel_operands_kernels {  // nvcc names an anonymous one anew in every build

/// A chunk of one sequence. Positions are tokens in the order of the walk.
struct Chunk {
  SequenceSpan span;
  std::int64_t sequence = 0;
  std::int64_t first = 0;  // position
  int rows = 0;            // tokens that exist

  __device__ std::int64_t token(const ChannelOperandsParams& p, int row) const {
    const std::int64_t position = first + row;
    return span.begin + (p.reverse ? span.length - 1 - position : position);
  }
};

__device__ __forceinline__ Chunk chunk_of(const ChannelOperandsParams& p, std::int64_t part) {
  Chunk chunk;
  chunk.sequence = sequence_of_part(p.sequences, p.sequence_count, part, kSplitChunk);
  chunk.span = span_of(p.sequences, chunk.sequence);
  chunk.first =
      (part - first_part(p.sequences, chunk.sequence, chunk.span, kSplitChunk)) * kSplitChunk;
  if (chunk.span.is_left_out || chunk.first < 0 || chunk.first >= chunk.span.length) return chunk;
  chunk.rows = static_cast<int>(min(chunk.span.length - chunk.first, std::int64_t{kSplitChunk}));
  return chunk;
}

/// What all channels of the chunk share of a token's decay: lane i has token i's.
__device__ __forceinline__ float shared_log(const ChannelOperandsParams& p, const Chunk& chunk,
                                            int head) {
  static_assert(kSplitChunk == kWarpSize);
  float shared = constant_decay(p.gamma, chunk.sequence, head);
  if (p.shared_gate.given()) {
    const int row = min(static_cast<int>(threadIdx.x) % kWarpSize, chunk.rows - 1);
    shared += gate_at<float>(
        p.shared_gate, row_offset(p.shared_gate.rows, chunk.span.batch, chunk.token(p, row), head));
  }
  return shared;
}

/// grid: parts x heads x groups. block: a thread for every padded channel of a group.
__global__ __launch_bounds__(kOperandChannels) void make_channel_operands(
    const __grid_constant__ ChannelOperandsParams p) {
  constexpr int kTogether = 8;  // tokens whose loads are under way together
  __shared__ Chunk shared_chunk;
  const int groups = p.padded_channels / static_cast<int>(blockDim.x);
  const std::int64_t of_head = quotient(block_number(), groups);
  const int group = static_cast<int>(block_number() - of_head * groups);
  const std::int64_t part = quotient(of_head, p.heads);
  const int head = static_cast<int>(of_head - part * p.heads);
  if (part >= p.parts) return;
  if (threadIdx.x == 0) shared_chunk = chunk_of(p, part);
  __syncthreads();  // the chunk is known
  const Chunk chunk = shared_chunk;
  if (chunk.rows == 0) return;
  const int channel = group * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  const bool exists = channel < p.channels;
  const int own = exists ? channel : 0;
  const int last = chunk.rows - 1;

  const float shared = shared_log(p, chunk, head);
  const std::int64_t first = chunk.token(p, 0);
  const int direction = p.reverse ? -1 : 1;
  const float* const gates = static_cast<const float*>(p.gate.rows.data) +
                             row_offset(p.gate.rows, chunk.span.batch, first, head) + own;
  float logs[kSplitChunk];
  Log2Sum sum;
  float total = 0.0F;
  bool strong = false;
  // Warps behind the last channel have no loads to wait for.
  if (channel / kWarpSize * kWarpSize < p.channels) {
#pragma unroll
    for (int i = 0; i < kSplitChunk; ++i) {
      logs[i] = __ldg(gates + min(i, last) * direction * p.gate.rows.token);
    }
#pragma unroll
    for (int i = 0; i < kSplitChunk; ++i) {
      const float log = logs[i] + __shfl_sync(kFullWarp, shared, i);
      logs[i] = exists && i <= last ? log : 0.0F;
      total += logs[i];
      sum.add(logs[i]);
      strong = strong || sum.exceeds(kMostLog2);
    }
  }
  strong = __syncthreads_or(strong ? 1 : 0) != 0;

  const DecayFactor factor = decay_factor(total);
  p.chunk_totals[of_head * p.padded_channels + channel] = {factor.high, factor.low};
  if (threadIdx.x == 0) p.is_strong[of_head * groups + group] = strong ? 1 : 0;
  const auto width = static_cast<int>(operand_channels(p.channels));
  if (channel >= width) return;

  const bool has_reads = exists && p.reads.data != nullptr;
  const int kv_head = head / p.heads_per_kv;
  const float* const reads_from = static_cast<const float*>(p.reads.data) +
                                  row_offset(p.reads, chunk.span.batch, first, head) + own;
  const float* const writes_from = static_cast<const float*>(p.writes.data) +
                                   row_offset(p.writes, chunk.span.batch, first, kv_head) + own;
  const std::int64_t to_row = static_cast<std::int64_t>(p.heads) * width;
  const std::int64_t to = (chunk.span.batch * p.sequences.tokens + first) * to_row +
                          static_cast<std::int64_t>(head) * width + channel;
  sum = {};
#pragma unroll
  for (int begin = 0; begin < kSplitChunk; begin += kTogether) {
    float reads[kTogether];
    float writes[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int step = min(begin + i, last) * direction;
      reads[i] = has_reads ? __ldg(reads_from + step * p.reads.token) : exists ? 1.0F : 0.0F;
      writes[i] = exists ? __ldg(writes_from + step * p.writes.token) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (begin + i > last) break;
      sum.add(logs[begin + i]);
      const std::int64_t at = to + (begin + i) * direction * to_row;
      p.read_operands[at] = strong ? reads[i] : reads[i] * sum.exp2();
      p.write_operands[at] = strong ? writes[i] : writes[i] * sum.exp2_of_minus();
    }
  }
}

}  // namespace channel_operands_kernels

void launch_channel_operands(const ChannelOperandsParams& p, cudaStream_t stream) {
  const int width = std::min(p.padded_channels, kOperandChannels);
  launch<make_channel_operands>({.grid = grid_of(p.parts * p.heads * (p.padded_channels / width)),
                                 .block = static_cast<unsigned>(width)},
                                stream, p);
}

}  // namespace attune::cuda::chunk_mma
