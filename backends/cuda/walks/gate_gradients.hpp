// Gradients of log decays from what two walks found.
//
// Let Z_t be the gradient of token t's log decay, per channel c of the walks' columns: q's channels
// for the pair of walks dq, dk, and v's for the pair o, dv. From S_t = L_t S_{t-1} + k_t v_t and
// dS_t = L_{t+1} dS_{t+1} + scale q_t do_t follows
//
//   Z_t = <S_t, dS_t> - lost_t           gained_t = q_t dq_t   or   o_t do_t
//   Z_t = Z_{t+1} + gained_t - lost_t    lost_t = k_t dk_t     or   v_t dv_t
//
// with <., .> the sum over the walks' rows. The first form is taken at every checkpoint of the
// states, the second between two of them: so rounding errors never add up over more than
// `interval` tokens. Z is 0, exactly, where the decay resets the state and where there is no state
// yet.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

/// Tokens between checkpoints, at most.
inline constexpr int kMaxInterval = 256;

/// A row of one of the op's tensors times its gradient.
struct GradientTerm {
  ConstTokenView rows;             // in the element type; none: the term is zero
  std::int64_t heads_per_row = 1;  // query heads: 1, or heads_per_kv of k and v
  const float* planes = nullptr;   // [plane_count, B, T, H, columns]
};

struct GateGradientParams {
  SequencesView sequences;
  std::int64_t batches = 0;
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;
  std::int64_t columns = 0;
  bool descending = false;  // the order in which states follow each other
  bool has_initial = false;

  GradientTerm gained;
  GradientTerm lost;
  std::int64_t plane_count = 1;
  const float* products = nullptr;  // [product_planes, checkpoints, H, columns], of WalkCheckpoints
  std::int64_t product_planes = 1;
  std::int64_t checkpoints = 0;
  std::int64_t interval = kMaxInterval;

  GateView shared_gate;   // g
  GateView channel_gate;  // gk or gv
  ConstantDecayView gamma;

  TokenView channels;            // f32 [B, T, H, columns]: Z; none when not wanted
  TokenView shared;              // f32 [B, T, H]: Z summed over channels
  float* gamma_terms = nullptr;  // [checkpoints, H]: the same, summed over tokens
};

/// The gradient of gamma.values.
struct GammaGradientParams {
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;
  const float* terms = nullptr;  // [checkpoints, H]
  std::int64_t checkpoints = 0;
  std::int64_t interval = kMaxInterval;
  float* out = nullptr;              // [N, H]
  std::int64_t sequence_stride = 0;  // 0: summed over sequences
  std::int64_t head_stride = 1;
  float sign = 1.0F;
};

template <class T>
void launch_gate_gradients(const GateGradientParams& params, cudaStream_t stream);

void launch_gamma_gradient(const GammaGradientParams& params, cudaStream_t stream);

}  // namespace attune::cuda
