// Operands of f32 whose channels have gates: chunk by chunk, of key channels
//
//   q'_i = q_i 2^(G_i)    k'_j = k_j 2^(-G_j)    P[i][j] = scale q'_i . k'_j, j <= i
//
// with G the sum of a channel's log decays, g's and gamma's included, from the chunk's start. The
// walk that follows has scores and states as if there were no gate, and multiplies the state by 2^G
// of the whole chunk behind it. Value channels are alike: v'_j = v_j 2^(-G_j), and what reads is
// the factor 2^(G_i) of the output. g and gamma are those of keys where both have gates.
//
// A chunk with a |G| over kMostLog2 has operands as they are, factors of 1, and is walked token by
// token.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunk_mma/chunk_mma.hpp"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda::chunk_mma {

/// 2^-80 times an operand, and the low half of that, are within fp32's range for all operands above
/// 2^-37; 2^80 times it, and sums of its products, for all below 2^40.
inline constexpr float kMostLog2 = 80.0F;

/// Channels of a row of operands, zeros behind K or V.
constexpr std::int64_t operand_channels(std::int64_t channels) {
  return (channels + kChannelsPerSplitCopy - 1) / kChannelsPerSplitCopy * kChannelsPerSplitCopy;
}
/// Groups of value channels that are strong or not; of key channels there is one.
constexpr std::int64_t operand_groups(std::int64_t channels) {
  return (channels + kOperandChannels - 1) / kOperandChannels;
}

struct ChannelOperandsParams {
  ConstTokenView reads = {};   // q; ones where there are none
  ConstTokenView writes = {};  // k or v
  GateView shared_gate = {};   // g
  GateView gate = {};          // gk or gv
  ConstantDecayView gamma = {};
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t parts = 0;  // chunks of all sequences, numbered as sequence_parts.hpp does
  int heads = 1;
  int heads_per_kv = 1;
  int channels = 0;
  int padded_channels = 0;  // up to kOperandChannels, or a multiple of it
  bool reverse = false;
  /// Operands are [batch, token, H, operand_channels()], where tokens are. Of every chunk and head
  /// there are its decays, exp() as a sum of two, [part, H, padded_channels], and whether they are
  /// strong, [part, H, group].
  float* read_operands = nullptr;
  float* write_operands = nullptr;
  float2* chunk_totals = nullptr;
  int* is_strong = nullptr;
};

void launch_channel_operands(const ChannelOperandsParams& params, cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma
