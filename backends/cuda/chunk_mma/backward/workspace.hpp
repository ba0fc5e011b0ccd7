// What a call of the backward pass has in its workspace, how its problem is cut, and how its key
// channels go slice by slice where the states of all would take too much memory.
//
// With a slice of the key channels a run of the kernels gives dq, dk and dgk of these, and what they
// have part in of dv, dgv and dg: the first run writes, later ones add to what is there.
#pragma once

#include <algorithm>
#include <cstddef>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunk_mma/backward/chunk_mma_backward_config.hpp"
#include "cuda/chunk_mma/backward/params.hpp"
#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::chunk_mma::backward {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr bool has_key_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
constexpr bool has_value_gates(const Problem& problem) {
  return (problem.gates & ops::kGateGv) != 0;
}
/// Tokens of a sequence, of packed ones on average.
inline std::int64_t mean_tokens(const Problem& problem) {
  return std::max<std::int64_t>(problem.T / std::max<std::int64_t>(problem.N, 1), 1);
}
/// Whether a chunk may start from a state, or leave one that has a gradient; else all are zeros.
constexpr bool has_states(const Problem& problem) {
  return problem.T > kTokens || problem.h0 || problem.ht;
}
/// Whether the gradients of a chunk are the work of a block for each panel of its channels
/// (panel_block.cuh), not of one.
constexpr bool goes_by_panels(const Problem& problem) {
  const bool has_few_values = has_value_gates(problem) || panels_of(problem.V) <= kMostPanels;
  return panels_of(problem.K) > kMostPanels || !has_few_values;
}
constexpr bool shares_heads(const Problem& problem) { return problem.H != problem.Hkv; }
inline std::int64_t parts_of(const Problem& problem, std::int64_t tokens) {
  return part_count(problem.sequences(), problem.T, problem.N > 0, tokens);
}
/// Tokens up to which packed sequences are left to pairs of tokens, 0 where none are. On 85 problems of
/// an H100 those that have so many blocks take 0.04 to 1.06 of the time, others 0.55 to 1.3. Of 42 of an
/// H200 with up to 32 tokens on average they take 0.73, 0.32 to 1.56; with more up to 3.2.
inline std::int64_t most_left_out(const Problem& problem) {
  constexpr std::int64_t kManyPanels = 500;
  const std::int64_t panels = problem.N * problem.H * (panels_of(problem.K) + panels_of(problem.V));
  return pairs::most_left_out(problem, pairs::kShortSequence, panels >= kManyPanels);
}

/// Tokens of a segment; more than T where sequences are not cut.
constexpr std::int64_t segment_tokens_of(const Problem& problem, const BackwardConfig& config) {
  const std::int64_t tokens = segment_tokens(problem.T, problem.N, config.segments, kTokens);
  return tokens > 0 ? tokens : (problem.T / kTokens + 1) * kTokens;
}

/// Key channels of a head that one run takes, with all value channels.
struct KeySlice {
  std::int64_t first = 0;
  std::int64_t keys = 0;

  Problem of(const Problem& problem) const {
    Problem slice = problem;
    slice.K = keys;
    return slice;
  }
  Args of(const Args& args) const {
    Args slice = args;
    slice.q = rows(args.q);
    slice.k = rows(args.k);
    if (args.gk) slice.gk = rows(*args.gk);
    slice.dq = rows(args.dq);
    slice.dk = rows(args.dk);
    if (args.dgk) slice.dgk = rows(*args.dgk);
    if (args.initial_state) slice.initial_state = states(*args.initial_state);
    if (args.dfinal_state) slice.dfinal_state = states(*args.dfinal_state);
    if (args.dinitial_state) slice.dinitial_state = states(*args.dinitial_state);
    return slice;
  }

 private:
  template <class Tensor>
  Tensor rows(const Tensor& tensor) const {
    return tensor.slice(3, first, first + keys);
  }
  template <class Tensor>
  Tensor states(const Tensor& state) const {
    return state.slice(2, first, first + keys);
  }
};

/// Microseconds that a chunk's scores take: of a panel without gates, and more where blocks share them.
inline constexpr double kScoresOfPanel = 1.2, kSharedScores = 6;

/// Blocks that share the panels of a chunk's scores: as many as find room, where chunks are so few, and
/// panels so many, that it pays.
inline int score_blocks(const Problem& problem) {
  constexpr std::int64_t kRoom = 132;        // an H100's multiprocessors
  constexpr double kOfLoneGatedPanel = 3.4;  // nothing else hides its latencies
  const std::int64_t chunks = ceil_div(mean_tokens(problem), kTokens) * problem.sequences();
  const std::int64_t blocks = kRoom / std::max<std::int64_t>(chunks * problem.H, 1);
  const int keys = panels_of(problem.K);
  const int panels = keys + panels_of(problem.V);
  const int gated = has_value_gates(problem) ? panels : has_key_gates(problem) ? keys : 0;
  const double us = kOfLoneGatedPanel * gated + kScoresOfPanel * (panels - gated);
  const auto most = static_cast<int>(std::clamp<std::int64_t>(blocks, 1, panels));
  return us * (1 - 1.0 / most) > kSharedScores ? most : 1;
}

/// Of a slice: as many as leave the states of its chunks two gigabytes of the workspace each way.
inline std::int64_t most_keys(const Problem& problem) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;
  constexpr std::int64_t kFewest = 2 * kPanelChannels;
  const std::int64_t rows = std::max(parts_of(problem, kTokens) * problem.H, std::int64_t{1});
  const std::int64_t row_bytes = rows * state_columns(problem.V) * std::int64_t{sizeof(float)};
  return std::max(kMostBytes / (kFewest * row_bytes), std::int64_t{1}) * kFewest;
}

/// Calls run(slice) for all of them.
template <class Run>
void for_each_slice(const Problem& problem, Run&& run) {
  const std::int64_t most = most_keys(problem);
  for (std::int64_t key = 0; key < problem.K; key += most) {
    run(KeySlice{key, std::min(problem.K - key, most)});
  }
}

/// The first slice: no other is larger.
inline Problem first_slice(const Problem& problem) {
  return KeySlice{0, std::min(problem.K, most_keys(problem))}.of(problem);
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
    for (StateSide* const side : {&forward, &back}) {
      if (has_states(problem)) side->states = parts.take<float>(chunks * size);
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
    if (goes_by_panels(problem)) {
      scores = parts.take<ChunkScores>(chunks * std::int64_t{sizeof(ChunkScores)});
      gate_parts =
          parts.take<GateParts>(chunks * parts_of_gates(slice.K) * std::int64_t{sizeof(GateParts)});
      if (const int blocks = score_blocks(slice); blocks > 1) {
        score_parts = parts.take<ScorePart>(chunks * blocks * std::int64_t{sizeof(ScorePart)});
        score_blocks_done = parts.take<unsigned>(chunks * std::int64_t{sizeof(unsigned)});
      }
    }
    if ((problem.gates & ops::kGateGamma) != 0) gamma_terms = parts.take<float>(chunks * kFloat);
    if (const std::int64_t left_out = most_left_out(problem); left_out > 0) {
      of_short =
          parts.take<std::byte>(static_cast<std::int64_t>(pairs::short_gradients_bytes(problem)));
      const auto take = [&](WalkedList& list, std::int64_t of_number) {
        list.most = pairs::most_walked_parts(problem, left_out, of_number);
        list.numbers = parts.take<int>(list.bytes());
      };
      take(walked, kTokens);
      take(walked_segments, tokens);
    }
    bytes = parts.used();
  }

  StateSide forward, back;
  bool is_cut = false;
  WalkOperands keys, values;
  float* dk = nullptr;  // of query heads, where these share keys and values
  float* dv = nullptr;
  ChunkScores* scores = nullptr;
  GateParts* gate_parts = nullptr;
  ScorePart* score_parts = nullptr;
  unsigned* score_blocks_done = nullptr;
  float* gamma_terms = nullptr;
  std::byte* of_short = nullptr;       // what makes the sequences' that are left out
  WalkedList walked, walked_segments;  // chunks and segments of the others
  std::size_t bytes = 0;
};

/// What the kernels are given for a slice's problem and arguments, with dk and dv of query heads.
BackwardParams params_of(const Problem& problem, const Args& args, const BackwardConfig& config,
                         const Workspace& workspace);

}  // namespace attune::cuda::chunk_mma::backward
