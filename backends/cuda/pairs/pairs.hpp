// The parallel form of recurrent attention, for sequences of a few tokens that start from no state:
// scores of all pairs of tokens, and no state at all.
//
//   o_i = sum_{j <= i} P[i, j] ev_ij v_j            e_ij  = exp(sum of g + g_gamma + gk over j+1 .. i)
//   P[i, j] = scale sum_r q_i[r] e_ij[r] k_j[r]     ev_ij = exp(sum of gv over j+1 .. i)
//
// with i and j in the order of the walk. The gradients, with
// dP[i, j] = scale sum_c do_i[c] ev_ij[c] v_j[c], are
//
//   dq_i = sum_{j <= i} dP[i, j] e_ij k_j           dk_j = sum_{i >= j} dP[i, j] e_ij q_i
//   dv_j = sum_{i >= j} P[i, j] ev_ij do_i
//   dgk_t = sum_{j < t <= i} w_ij                   w_ij = dP[i, j] e_ij q_i k_j
//   dgv_t = sum_{j < t <= i} wv_ij                  wv_ij = P[i, j] ev_ij do_i v_j
//
// so that dgk_t - dgk_{t+1} = gained_t - lost_t, with gained_t the sum of w_tj over j < t and
// lost_t that of w_it over i > t; those of g and g_gamma are sums over channels.
//
// A warp has a token of one head, with its channels in registers, and goes from pair to pair with
// the decays between as running products: a reset is exact.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/views.hpp"

namespace attune::cuda::pairs {

/// Channels of keys or values that a warp has registers for.
inline constexpr std::int64_t kMostChannels = 16 * 32;

/// What both passes are given.
struct Inputs {
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t batches = 0;  // B
  std::int64_t heads = 0;    // query heads
  std::int64_t heads_per_kv = 1;
  int keys = 0;
  int values = 0;
  bool descending = false;
  float scale = 1.0F;
  std::int64_t most_tokens = 0;  // of a sequence; longer ones are another launch's. 0: none are

  ConstTokenView q, k, v;
  GateView shared_gate;  // g
  GateView key_gate;     // gk
  GateView value_gate;   // gv
  ConstantDecayView gamma;

  /// Whether warps are for the first `most_tokens` tokens of each sequence: else for all tokens, of
  /// which they find the sequence.
  constexpr bool by_sequence() const {
    return most_tokens > 0 && sequence_count * most_tokens < batches * sequences.tokens;
  }
  /// For which there are warps, of a head.
  constexpr std::int64_t rows() const {
    return by_sequence() ? sequence_count * most_tokens : batches * sequences.tokens;
  }
  constexpr std::int64_t kv_heads() const { return heads / heads_per_kv; }
  constexpr bool takes(std::int64_t length) const {
    return most_tokens == 0 || length <= most_tokens;
  }
};

/// `args`: of either pass.
template <class Args>
Inputs inputs_of(const ops::RecurrentAttentionProblem& problem, const Args& args) {
  Inputs p;
  p.sequences = sequences_view(args.cu_seqlens, problem.T);
  p.sequence_count = problem.sequences();
  p.batches = problem.B;
  p.heads = problem.H;
  p.heads_per_kv = problem.H / problem.Hkv;
  p.keys = static_cast<int>(problem.K);
  p.values = static_cast<int>(problem.V);
  p.descending = problem.reverse;
  p.scale = static_cast<float>(args.scale);
  p.q = token_view(args.q);
  p.k = token_view(args.k);
  p.v = token_view(args.v);
  p.shared_gate = gate_view(args.g);
  p.key_gate = gate_view(args.gk);
  p.value_gate = gate_view(args.gv);
  p.gamma = decay_view(args.gamma, problem.H);
  return p;
}

struct ForwardParams : Inputs {
  TokenView o;
};

/// Terms of gradients of gates, fp32 [B, T, H, channels]; null where there are none.
struct GateTerms {
  float* gained = nullptr;
  float* lost = nullptr;
};

/// Where the gradient of g_gamma's values goes, of a sequence and head, or what is summed up to it
/// behind pairs of tokens.
struct GammaOutput {
  float* data = nullptr;
  std::int64_t sequence = 0;  // strides
  std::int64_t head = 0;
  bool of_chunks = false;  // `sequence` is a chunk's (chunk.hpp): of a sequence's first one
  int terms = 1;           // that are summed up: the gradient and zeros
  float sign = 1;          // -1 for slopes
};

struct BackwardParams : Inputs {
  ConstTokenView d_o;
  TokenView dq, dk, dv;
  GateTerms shared_terms;  // of g and g_gamma: [B, T, H]
  GateTerms key_terms;     // of gk
  GateTerms value_terms;   // of gv
  TokenView dg, dgk, dgv;  // fp32; none where not wanted
  GammaOutput dgamma;
  bool single_tokens = false;  // no sequence has more

  constexpr bool wants_shared_gates() const { return dg.data != nullptr || dgamma.data != nullptr; }
};

// Queue one pass each. `warps`: of a block.
template <class T>
void launch_forward(const ForwardParams& params, int warps, cudaStream_t stream);
template <class T>
void launch_backward(const BackwardParams& params, int warps, cudaStream_t stream);

}  // namespace attune::cuda::pairs
