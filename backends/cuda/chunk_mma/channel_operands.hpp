// Operands of f32 whose key channels have gates: chunk by chunk,
//
//   q'_i = q_i 2^(G_i)    k'_j = k_j 2^(-G_j)    P[i][j] = scale q'_i . k'_j, j <= i
//
// with G the sum of a channel's log decays, g's and gamma's included, from the chunk's start. The
// walk that follows has scores and states as if there were no gate, and multiplies the state by 2^G
// of the whole chunk behind it.
//
// A chunk with a |G| over kMostLog2 has q and k as they are, and is walked token by token.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunk_mma/chunk_mma.hpp"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda::chunk_mma {

/// 2^-80 times an operand, and the low half of that, are within fp32's range for all operands above
/// 2^-37; 2^80 times it, and sums of its products, for all below 2^40.
inline constexpr float kMostLog2 = 80.0F;

/// Channels of a row of operands, zeros behind K.
constexpr std::int64_t operand_channels(std::int64_t keys) {
  return (keys + kChannelsPerSplitCopy - 1) / kChannelsPerSplitCopy * kChannelsPerSplitCopy;
}

struct ChannelOperandsParams {
  ConstTokenView q, k;
  GateView g, gk;
  ConstantDecayView gamma;
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t parts = 0;  // chunks of all sequences, numbered as sequence_parts.hpp does
  int heads = 1;
  int heads_per_kv = 1;
  int key_channels = 0;
  int padded_keys = 0;
  bool reverse = false;
  /// What is made: [batch, token, H, operand_channels(K)] where tokens are, and of every chunk and
  /// head its decay, exp() as a sum of two, [part, H, padded_keys], and whether it is strong,
  /// [part, H].
  float* q_operands = nullptr;
  float* k_operands = nullptr;
  float2* chunk_totals = nullptr;
  int* is_strong = nullptr;
};

void launch_channel_operands(const ChannelOperandsParams& params, cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma
