// The decode kernels as host code sees them: their parameters, and how they are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include <attune/core/state_rounding.hpp>

#include "cuda/chunks/views.hpp"
#include "cuda/decode/decode_config.hpp"

namespace attune::cuda::decode {

/// [S, H, K, V], any strides; the elements' type is a kernel's argument.
struct PoolView {
  void* data = nullptr;
  std::int64_t sequence = 0;  // strides
  std::int64_t head = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
};

/// What a state takes of tokens.
struct TokensView {
  ConstTokenView k, v;
  GateView g, gk, gv;
};

/// A step of one token a row. Views of tokens have a time of one token.
struct DecodeParams {
  ConstTokenView q;
  TokensView fresh;
  ConstantDecayView gamma;
  IndicesView slots;  // of the rows; without them row b has slot b
  /// Of packed sequences: those of one token are rows, others are left alone. Then a row starts
  /// from its slot, or zeros, and ends in `ends`, or nowhere.
  SequencesView sequences = {};
  IndicesView ends = {};
  /// Of them: the launch before leaves what the rows read and write alone, and has waited for what
  /// was queued before it.
  bool runs_beside_previous = false;
  PoolView state;
  TokenView o;
  std::int64_t rows = 0;   // B
  std::int64_t pool = 0;   // S
  std::int64_t heads = 0;  // H
  std::int64_t heads_per_kv = 1;
  std::int64_t keys = 0;    // K
  std::int64_t values = 0;  // V
  float scale = 1;
};

/// Any step. Without kept slots and committed tokens, the state after the last token is stored.
struct StepParams : DecodeParams {
  TokensView committed;
  IndicesView kept;             // [B, T], where states are kept
  std::int64_t kept_token = 0;  // its stride over tokens
  IndicesView accepted;         // [B], with kept slots or committed tokens
  StateRounding rounding;
  std::int32_t tokens = 1;            // T
  std::int32_t committed_tokens = 0;  // R
};

/// What the host makes of a pool, and of a call.
PoolView pool_view(const TensorView& states);
StepParams step_params_of(const ops::RecurrentDecodeProblem& problem,
                          const ops::RecurrentDecodeArgs& args);

// T is the type of q, k, v and o, State that of the pool.

/// Queues the kernel for one token a row, rounded to nearest, and states whose rows are contiguous
/// and start at multiples of 16 bytes.
template <class T, class State>
void launch_decode_row_tiles(const DecodeConfig& config, const DecodeParams& params,
                             cudaStream_t stream);

/// Queues the kernel for one token a row and states in f32 of any strides.
template <class T>
void launch_decode_any_strides(const DecodeConfig& config, const DecodeParams& params,
                               cudaStream_t stream);

/// Queues the kernel for any step. `row_vectors`: the states are as launch_decode_row_tiles() needs
/// them; else their strides may be any.
template <class T, class State>
void launch_decode_step(const DecodeConfig& config, const StepParams& params, bool row_vectors,
                        cudaStream_t stream);

/// Queues the kernel for steps of several tokens whose reads and writes are products; see
/// takes_products().
template <class T, class State>
void launch_step_products(const DecodeConfig& config, const StepParams& params,
                          cudaStream_t stream);

/// Whether the states' rows are made of whole aligned vectors.
bool has_row_vectors(const TensorView& states);

/// Whether the problem is for the kernels of one token. In 16 bits they take whole vectors alone:
/// the kernel of any step has the rest.
bool is_one_token(const ops::RecurrentDecodeProblem& problem);

/// Whether the problem is for launch_step_products(), whose config it then has: a few tokens of 16
/// bits a row, of which one state is left. Where a gk is not aligned, launch_decode_step() has it.
bool takes_products(const ops::RecurrentDecodeProblem& problem);
bool has_aligned_gates(const StepParams& params);

/// Queues the kernel that takes the problem on such states.
template <class T, class State>
void launch_decode(const ops::RecurrentDecodeProblem& problem, const TensorView& states,
                   const DecodeConfig& config, const StepParams& params, cudaStream_t stream) {
  const bool row_vectors = has_row_vectors(states);
  if (is_one_token(problem) && row_vectors) {
    launch_decode_row_tiles<T, State>(config, params, stream);
  } else if (is_one_token(problem) && problem.state_dtype == DType::kF32) {
    launch_decode_any_strides<T>(config, params, stream);
  } else if (takes_products(problem) && has_aligned_gates(params)) {
    if constexpr (sizeof(T) < sizeof(float)) launch_step_products<T, State>(config, params, stream);
  } else {
    launch_decode_step<T, State>(config, params, row_vectors, stream);
  }
}

}  // namespace attune::cuda::decode
