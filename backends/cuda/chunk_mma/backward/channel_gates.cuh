// The gradients of the gates of a chunk's key channels. For token t of a channel
//
//   dgk_t = exp(G_last) <S, D> + sum_(i >= t) x_i + sum_(j < t) (y_j + c_j - r_j)
//
// where x and y are what q and k read of S and D, times them (params.hpp), and r_i and c_j the same
// of what they read of other tokens of the chunk: what a token reads of itself no gate of its chunk
// has part in.
#pragma once

#include "cuda/chunk_mma/backward/channel_scan.cuh"
#include "cuda/chunk_mma/backward/scores.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Where a block keeps what its gates' gradients are made of: over its last panels. Those behind the
/// tokens' have room for `reads`.
template <class Own, int kKeyPanels>
struct ChannelGateMemory {
  using Threads = ChannelThreads<Own, kKeyPanels>;
  GateMemory<Own> shared;                                       // of what all channels share
  float channel_sums[Threads::kChannels / kWarpSize][kTokens];  // of gradients, of 32 channels
  float reads_of_group[Threads::kGroups][Threads::kChannels];
  float behind_of_group[Threads::kGroups][Threads::kChannels];
  ChannelTile<kKeyPanels> behind;  // y + c - r
  ChannelTile<kKeyPanels> reads;   // x, then the gradients
  static_assert(sizeof(ChannelTile<kKeyPanels>) <= 2 * kPanelBytes);
};

/// Makes the gradients of what is in the two tiles.
template <class Own, int kKeyPanels>
__device__ __forceinline__ void sum_gates(ChannelGateMemory<Own, kKeyPanels>& memory,
                                          const ChannelMemory<kKeyPanels>& channels) {
  using Threads = ChannelThreads<Own, kKeyPanels>;
  const int channel = Threads::channel();
  float reads[Threads::kTokensOfGroup];  // from token i of the group on
  float reads_all = 0.0F;
  float behind_all = 0.0F;
#pragma unroll
  for (int i = Threads::kTokensOfGroup - 1; i >= 0; --i) {
    reads_all += memory.reads.at(Threads::token(i), channel);
    reads[i] = reads_all;
    behind_all += memory.behind.at(Threads::token(i), channel);
  }
  memory.reads_of_group[Threads::group()][channel] = reads_all;
  memory.behind_of_group[Threads::group()][channel] = behind_all;
  __syncthreads();  // the sums of all groups are there
  float later_reads = channels.products[channel];
  float behind = 0.0F;
#pragma unroll
  for (int group = 0; group < Threads::kGroups; ++group) {
    if (group > Threads::group()) later_reads += memory.reads_of_group[group][channel];
    if (group < Threads::group()) behind += memory.behind_of_group[group][channel];
  }
#pragma unroll
  for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
    memory.reads.at(Threads::token(i), channel) = later_reads + reads[i] + behind;
    behind += memory.behind.at(Threads::token(i), channel);
  }
}

/// Stores the gradients of a chunk's gates. Those that all channels share come from scores, which is
/// more exact than a sum of what cancels in each channel, but where the chunk is strong.
template <class Own, int kKeyPanels>
__device__ __forceinline__ void store_channel_gates(ChannelGateMemory<Own, kKeyPanels>& memory,
                                                    const BackwardParams& p, const Chunk& chunk,
                                                    bool strong) {
  using Threads = ChannelThreads<Own, kKeyPanels>;
  const Place& place = chunk.place;
  const int channel = Threads::channel();
  const int exist = channel < p.key_channels ? place.rows : 0;
  // There is nothing before a sequence's first token. Resets are strong: what passes them is 0.
  const int first = p.has_initial || place.first > 0 ? 0 : 1;
  if (Threads::group() == 0 && first > 0) memory.reads.at(0, channel) = 0.0F;
  if (p.dgk.data != nullptr && exist > 0) {
    float* const to = static_cast<float*>(p.dgk.data) + channel +
                      row_offset(p.dgk, place.span.batch, place.token(p, 0), chunk.head);
    const std::int64_t step = p.reverse ? -p.dgk.token : p.dgk.token;
#pragma unroll
    for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
      const int row = Threads::token(i);
      if (row < exist) store_share(to + row * step, memory.reads.at(row, channel), p.adds_keys);
    }
  }
  if (!wants_shared_gates(p)) return;
  if (strong) {
#pragma unroll 4
    for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
      const int row = Threads::token(i);
      const float sum = warp_sum(row < exist ? memory.reads.at(row, channel) : 0.0F);
      if (threadIdx.x % kWarpSize == 0) memory.channel_sums[channel / kWarpSize][row] = sum;
    }
  }
  __syncthreads();  // the sums of all channels are there
  if (Own::number() > 0) return;
  const int token = static_cast<int>(threadIdx.x) % kWarpSize * 2;
  const float2 sums = strong ? float2{sum_of_parts(memory.channel_sums, token),
                                      sum_of_parts(memory.channel_sums, token + 1)}
                             : gate_gradients<Own>(memory.shared);
  store_shared_gates(p, chunk, sums);
}

}  // namespace attune::cuda::chunk_mma::backward
