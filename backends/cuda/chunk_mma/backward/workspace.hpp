// What a call of the backward pass has in its workspace, how its problem is cut, and how its channels
// go slice by slice.
//
// With a slice of the key channels and one of the value channels, a run of the kernels gives what
// these have part in, and the sums over slices are the gradients: of dq, dk and dgk over those of
// value channels, of dv over those of key channels, of dg over both. The first run writes, later
// ones add to what is there.
#pragma once

#include <algorithm>
#include <cstddef>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunk_mma/backward/chunk_mma_backward_config.hpp"
#include "cuda/chunk_mma/backward/params.hpp"
#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::chunk_mma::backward {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr bool has_key_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
constexpr bool shares_heads(const Problem& problem) { return problem.H != problem.Hkv; }
constexpr std::int64_t decay_width(const Problem& problem) {
  return has_key_gates(problem) ? problem.K : 1;
}
inline std::int64_t parts_of(const Problem& problem, std::int64_t tokens) {
  return part_count(problem.sequences(), problem.T, problem.N > 0, tokens);
}

/// Tokens of a segment; more than T where sequences are not cut.
constexpr std::int64_t segment_tokens_of(const Problem& problem, const BackwardConfig& config) {
  const std::int64_t tokens = segment_tokens(problem.T, problem.N, config.segments, kTokens);
  return tokens > 0 ? tokens : (problem.T / kTokens + 1) * kTokens;
}

/// Channels of a head that one run takes.
struct ChannelSlice {
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  std::int64_t first_value = 0;
  std::int64_t values = 0;

  Problem of(const Problem& problem) const {
    Problem slice = problem;
    slice.K = keys;
    slice.V = values;
    return slice;
  }
  Args of(const Args& args) const {
    Args slice = args;
    slice.q = key_rows(args.q);
    slice.k = key_rows(args.k);
    slice.v = value_rows(args.v);
    if (args.d_o) slice.d_o = value_rows(*args.d_o);
    if (args.gk) slice.gk = key_rows(*args.gk);
    slice.dq = key_rows(args.dq);
    slice.dk = key_rows(args.dk);
    slice.dv = value_rows(args.dv);
    if (args.dgk) slice.dgk = key_rows(*args.dgk);
    if (args.initial_state) slice.initial_state = states(*args.initial_state);
    if (args.dfinal_state) slice.dfinal_state = states(*args.dfinal_state);
    if (args.dinitial_state) slice.dinitial_state = states(*args.dinitial_state);
    return slice;
  }

 private:
  template <class Tensor>
  Tensor key_rows(const Tensor& rows) const {
    return rows.slice(3, first_key, first_key + keys);
  }
  template <class Tensor>
  Tensor value_rows(const Tensor& rows) const {
    return rows.slice(3, first_value, first_value + values);
  }
  template <class Tensor>
  Tensor states(const Tensor& state) const {
    return value_rows(state.slice(2, first_key, first_key + keys));
  }
};

/// Calls run(slice) for all of them.
template <class Run>
void for_each_slice(const Problem& problem, Run&& run) {
  constexpr std::int64_t kMost = kMostChannels;
  for (std::int64_t key = 0; key < problem.K; key += kMost) {
    for (std::int64_t value = 0; value < problem.V; value += kMost) {
      run(ChannelSlice{key, std::min(problem.K - key, kMost), value,
                       std::min(problem.V - value, kMost)});
    }
  }
}

/// The first slice: no other is larger.
inline Problem first_slice(const Problem& problem) {
  constexpr std::int64_t kMost = kMostChannels;
  return ChannelSlice{0, std::min(problem.K, kMost), 0, std::min(problem.V, kMost)}.of(problem);
}

struct Workspace {
  Workspace(const Problem& problem, const BackwardConfig& config, std::byte* memory) {
    constexpr std::int64_t kFloat = sizeof(float);
    WorkspaceParts parts(memory);
    const Problem slice = first_slice(problem);
    const std::int64_t size = slice.K * state_columns(slice.V) * kFloat;
    const std::int64_t chunks = parts_of(problem, kTokens) * problem.H;
    const std::int64_t tokens = segment_tokens_of(problem, config);
    const std::int64_t segments = parts_of(problem, tokens) * problem.H;
    const std::int64_t decays = decay_width(slice) * kFloat;
    is_cut = tokens <= problem.T;
    for (StateSide* const side : {&forward, &back}) {
      side->states = parts.take<float>(chunks * size);
      if (!is_cut) continue;
      side->chunk_decays = parts.take<float>(chunks * decays);
      side->segment_states = parts.take<float>(segments * size);
      side->segment_decays = parts.take<float>(segments * decays);
    }
    const std::int64_t rows = problem.B * problem.T * problem.H;
    if (has_key_gates(problem)) {
      q = parts.take<float>(rows * operand_channels(slice.K) * kFloat);
      k = parts.take<float>(rows * operand_channels(slice.K) * kFloat);
      chunk_totals = parts.take<float2>(chunks * slice.K * std::int64_t{sizeof(float2)});
    }
    if (shares_heads(problem)) {
      dk = parts.take<float>(rows * problem.K * kFloat);
      dv = parts.take<float>(rows * problem.V * kFloat);
    }
    if ((problem.gates & ops::kGateGamma) != 0) gamma_terms = parts.take<float>(chunks * kFloat);
    bytes = parts.used();
  }

  StateSide forward, back;
  bool is_cut = false;
  float* q = nullptr;  // walk_operands.cu's
  float* k = nullptr;
  float2* chunk_totals = nullptr;
  float* dk = nullptr;  // of query heads, where these share keys and values
  float* dv = nullptr;
  float* gamma_terms = nullptr;
  std::size_t bytes = 0;
};

/// What the kernels are given for a slice's problem and arguments, with dk and dv of query heads.
BackwardParams params_of(const Problem& problem, const Args& args, const BackwardConfig& config,
                         const Workspace& workspace);

}  // namespace attune::cuda::chunk_mma::backward
