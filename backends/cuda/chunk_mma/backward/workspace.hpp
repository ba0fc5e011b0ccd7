// What a call of the backward pass has in its workspace, how its problem is cut, and how its channels
// go slice by slice.
//
// With a slice of the key channels and one of the value channels, a run of the kernels gives what
// these have part in, and the sums over slices are the gradients: of dq, dk and dgk over those of
// value channels, of dv and dgv over those of key channels, of dg over both. The first run writes,
// later ones add to what is there.
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
constexpr bool has_value_gates(const Problem& problem) {
  return (problem.gates & ops::kGateGv) != 0;
}
/// Whether a chunk may start from a state, or leave one that has a gradient; else all are zeros.
constexpr bool has_states(const Problem& problem) {
  return problem.N > 0 || problem.T > kTokens || problem.h0 || problem.ht;
}
constexpr bool shares_heads(const Problem& problem) { return problem.H != problem.Hkv; }
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
    if (args.gv) slice.gv = value_rows(*args.gv);
    slice.dq = key_rows(args.dq);
    slice.dk = key_rows(args.dk);
    slice.dv = value_rows(args.dv);
    if (args.dgk) slice.dgk = key_rows(*args.dgk);
    if (args.dgv) slice.dgv = value_rows(*args.dgv);
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

/// Value channels of a slice.
constexpr std::int64_t most_values(const Problem& problem) {
  return has_value_gates(problem) ? kMostGatedValues : kMostChannels;
}

/// Calls run(slice) for all of them.
template <class Run>
void for_each_slice(const Problem& problem, Run&& run) {
  constexpr std::int64_t kMostKeys = kMostChannels;
  const std::int64_t most = most_values(problem);
  for (std::int64_t key = 0; key < problem.K; key += kMostKeys) {
    for (std::int64_t value = 0; value < problem.V; value += most) {
      run(ChannelSlice{key, std::min(problem.K - key, kMostKeys), value,
                       std::min(problem.V - value, most)});
    }
  }
}

/// The first slice: no other is larger.
inline Problem first_slice(const Problem& problem) {
  constexpr std::int64_t kMostKeys = kMostChannels;
  return ChannelSlice{0, std::min(problem.K, kMostKeys), 0,
                      std::min(problem.V, most_values(problem))}
      .of(problem);
}

/// What walk_operands.cu makes of one side's channels.
struct WalkOperands {
  float* reads = nullptr;
  float* writes = nullptr;
  float2* chunk_totals = nullptr;

  void take(WorkspaceParts& parts, std::int64_t rows, std::int64_t chunks, std::int64_t channels) {
    const std::int64_t bytes = rows * operand_channels(channels) * std::int64_t{sizeof(float)};
    reads = parts.take<float>(bytes);
    writes = parts.take<float>(bytes);
    chunk_totals = parts.take<float2>(chunks * channels * std::int64_t{sizeof(float2)});
  }
};

struct Workspace {
  Workspace(const Problem& problem, const BackwardConfig& config, std::byte* memory) {
    constexpr std::int64_t kFloat = sizeof(float);
    WorkspaceParts parts(memory);
    const Problem slice = first_slice(problem);
    const std::int64_t size = slice.K * state_columns(slice.V) * kFloat;
    const std::int64_t chunks = parts_of(problem, kTokens) * problem.H;
    const std::int64_t tokens = segment_tokens_of(problem, config);
    const std::int64_t segments = parts_of(problem, tokens) * problem.H;
    is_cut = tokens <= problem.T;
    states_bytes = chunks * size;
    for (StateSide* const side : {&forward, &back}) {
      side->states = parts.take<float>(states_bytes);
      if (!is_cut) continue;
      side->segment_states = parts.take<float>(segments * size);
      const auto take = [&](KeptDecays& decays, std::int64_t width) {
        decays = {parts.take<float>(chunks * width * kFloat),
                  parts.take<float>(segments * width * kFloat), width};
      };
      take(side->keys, has_key_gates(problem) ? slice.K : 1);
      if (has_value_gates(problem)) take(side->values, slice.V);
    }
    const std::int64_t rows = problem.B * problem.T * problem.H;
    if (has_key_gates(problem)) keys.take(parts, rows, chunks, slice.K);
    if (has_value_gates(problem)) values.take(parts, rows, chunks, slice.V);
    if (shares_heads(problem)) {
      dk = parts.take<float>(rows * problem.K * kFloat);
      dv = parts.take<float>(rows * problem.V * kFloat);
    }
    if ((problem.gates & ops::kGateGamma) != 0) gamma_terms = parts.take<float>(chunks * kFloat);
    bytes = parts.used();
  }

  StateSide forward, back;
  std::int64_t states_bytes = 0;  // of one side's
  bool is_cut = false;
  WalkOperands keys, values;
  float* dk = nullptr;  // of query heads, where these share keys and values
  float* dv = nullptr;
  float* gamma_terms = nullptr;
  std::size_t bytes = 0;
};

/// What the kernels are given for a slice's problem and arguments, with dk and dv of query heads.
BackwardParams params_of(const Problem& problem, const Args& args, const BackwardConfig& config,
                         const Workspace& workspace);

}  // namespace attune::cuda::chunk_mma::backward
