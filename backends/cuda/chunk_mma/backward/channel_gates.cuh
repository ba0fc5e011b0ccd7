// The gradients of the gates of a chunk's key channels or value channels. For token t of a channel
//
//   dgk_t = exp(G_last) <S, D> + sum_(i >= t) x_i + sum_(j < t) (y_j + c_j - r_j)
//
// where x and y are what q and k read of S and D, times them (params.hpp), and r_i and c_j the same
// of what they read of other tokens of the chunk: what a token reads of itself no gate of its chunk
// has part in. For dgv do is in the place of q, and v of k.
#pragma once

#include "cuda/chunk_mma/backward/channel_scan.cuh"
#include "cuda/chunk_mma/backward/scores.cuh"

namespace attune::cuda::chunk_mma::backward {

/// What gradients of gates are made of, but for x.
template <class Own, int kPanels>
struct GateSums {
  using Thread = PanelThread<Own, kPanels>;
  ChannelTile<kPanels> behind;  // y + c - r
  float reads_of_group[Thread::kGroups][Thread::kChannels];
  float behind_of_group[Thread::kGroups][Thread::kChannels];
};

/// Where a block keeps what the gradients of the gates of keys are made of: over its last panels.
/// Those behind the tokens' have room for what a strong chunk keeps there, all but `sums`.
template <class Own, int kPanels>
struct KeyGateMemory {
  GateSums<Own, kPanels> sums;
  GateMemory<Own> shared;  // of what all channels share
  float channel_sums[kPanels * kPanelChannels / kWarpSize]
                    [kTokens];     // of gradients, of 32 channels
  ChannelTile<kPanels> gradients;  // of a strong chunk
};

/// Makes the gradients of `behind` and of x, which is in `logs`; they take its place.
template <class Own, int kPanels>
__device__ __forceinline__ void sum_gates(GateSums<Own, kPanels>& memory,
                                          ChannelMemory<kPanels>& channels) {
  using Thread = PanelThread<Own, kPanels>;
  const Thread own = Thread::again();
  ChannelTile<kPanels>& tile = channels.logs;
  const int channel = own.channel();
  float reads[Thread::kTokensOfGroup];  // from token i of the group on
  float reads_all = 0.0F;
  float behind_all = 0.0F;
#pragma unroll
  for (int i = Thread::kTokensOfGroup - 1; i >= 0; --i) {
    reads_all += tile.at(own.token(i), channel);
    reads[i] = reads_all;
    behind_all += memory.behind.at(own.token(i), channel);
  }
  memory.reads_of_group[own.group()][channel] = reads_all;
  memory.behind_of_group[own.group()][channel] = behind_all;
  __syncthreads();  // the sums of all groups are there
  float later_reads = channels.products[channel];
  float behind = 0.0F;
#pragma unroll
  for (int group = 0; group < Thread::kGroups; ++group) {
    if (group > own.group()) later_reads += memory.reads_of_group[group][channel];
    if (group < own.group()) behind += memory.behind_of_group[group][channel];
  }
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    tile.at(own.token(i), channel) = later_reads + reads[i] + behind;
    behind += memory.behind.at(own.token(i), channel);
  }
}

/// Stores the gradients of a side's gates, of channels from the first one on.
template <class Own, int kPanels>
__device__ __forceinline__ void store_channel_gates(ChannelTile<kPanels>& made,
                                                    const BackwardParams& p, const Chunk& chunk,
                                                    const ChannelSide& side, int first_channel,
                                                    bool adds) {
  using Thread = PanelThread<Own, kPanels>;
  const Thread own = Thread::again();
  const Place& place = chunk.place;
  const int channel = own.channel();
  // There is nothing before a sequence's first token. Resets are strong: what passes them is 0.
  const int first = p.has_initial || place.first > 0 ? 0 : 1;
  if (own.group() == 0 && first > 0) made.at(0, channel) = 0.0F;
  const TokenView& gradients = side.gate_gradients;
  if (gradients.data == nullptr || first_channel + channel >= side.channels) return;
  const std::int64_t step = p.reverse ? -gradients.token : gradients.token;
  float* to = static_cast<float*>(gradients.data) + first_channel + channel +
              row_offset(gradients, place.span.batch, place.token(p, 0), chunk.head) +
              own.token(0) * step;
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    const int row = own.token(i);
    if (row < place.rows) store_share(to, made.at(row, channel), adds);
    to += step;
  }
}

/// Stores the gradients of what all channels share, behind those of key channels. They come from
/// scores, which is more exact than a sum of what cancels in each channel, but where the chunk is
/// strong: then from the gates of channels from the first one on.
template <class Own, int kPanels>
__device__ __forceinline__ void store_shared_gates_of(KeyGateMemory<Own, kPanels>& memory,
                                                      const BackwardParams& p, const Chunk& chunk,
                                                      bool strong, bool adds, int first_key = 0) {
  using Thread = PanelThread<Own, kPanels>;
  const Thread own = Thread::again();
  const int channel = own.channel();
  if (strong) {
    const int exist = first_key + channel < p.keys.channels ? chunk.place.rows : 0;
#pragma unroll 4
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      const int row = own.token(i);
      const float sum = warp_sum(row < exist ? memory.gradients.at(row, channel) : 0.0F);
      if (threadIdx.x % kWarpSize == 0) memory.channel_sums[channel / kWarpSize][row] = sum;
    }
  }
  __syncthreads();  // the sums of all channels are there
  if (Own::number() > 0) return;
  const int token = static_cast<int>(threadIdx.x) % kWarpSize * 2;
  const float2 sums = strong ? float2{sum_of_parts(memory.channel_sums, token),
                                      sum_of_parts(memory.channel_sums, token + 1)}
                             : gate_gradients<Own>(memory.shared);
  store_shared_gates(p, chunk, sums, adds);
}

}  // namespace attune::cuda::chunk_mma::backward
