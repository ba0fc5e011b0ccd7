// Short ones of packed sequences that chunks walk. A walk takes as long for one token as for a chunk:
// where sequences begin with no state and many may be short, walks leave those out, and pairs of
// tokens make what they want, in a launch behind the walk.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/pairs/pairs.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::pairs {

/// Tokens up to which a sequence is short: as many pairs of them as take about a chunk's time.
inline constexpr std::int64_t kShortSequence = 32;
/// The same beside cuda.gla.backward, whose walks of single chunks take less.
inline constexpr std::int64_t kShortBesideGla = 16;
/// Tokens of a sequence on average up to which nearly all may be short.
inline constexpr std::int64_t kShortOnAverage = 16;

/// Tokens of the sequences that a walk leaves out, at most; 0 where it takes all. It leaves out those of
/// up to `most` where sequences have `on_average` tokens or fewer, of so many channels that pairs take,
/// and `are_many`: walks of a chunk take turns. None of these may tell a slice of K from all of it.
inline std::int64_t most_left_out(const ops::RecurrentAttentionProblem& problem,
                                  std::int64_t on_average, bool are_many,
                                  std::int64_t most = kShortSequence) {
  constexpr std::int64_t kMostTokens = 1 << 20;  // a grid has 65,535 long ones along y
  const bool has_states = problem.h0 || problem.ht || problem.pool || problem.snapshot_every > 0;
  if (problem.N <= 1 || has_states || std::max(problem.K, problem.V) > kMostChannels) return 0;
  const bool is_short = problem.T <= std::min(on_average * problem.N, kMostTokens);
  return is_short && are_many ? most : 0;
}

/// The most parts of so many tokens (walks/sequence_parts.hpp) that sequences of more than `left_out`
/// have.
inline std::int64_t most_walked_parts(const ops::RecurrentAttentionProblem& problem,
                                      std::int64_t left_out, std::int64_t tokens) {
  return problem.T / tokens + problem.T / (left_out + 1) + 1;
}

/// About as many blocks as walk a sequence forward: one for 64 value channels of a head.
inline std::int64_t forward_blocks(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kTile = 64;
  return problem.H * ceil_div(problem.V, kTile);
}
/// most_left_out() of a forward pass.
std::int64_t most_left_out(const ops::RecurrentAttentionProblem& problem);
/// What a forward pass by chunks walks: walked_sequences() without short ones.
SequencesView chunked_sequences(const ops::RecurrentAttentionProblem& problem,
                                const ops::RecurrentAttentionArgs& args);
/// Queues the outputs of short sequences, behind what else writes to their rows.
void launch_short_outputs(const ops::RecurrentAttentionProblem& problem,
                          const ops::RecurrentAttentionArgs& args, cudaStream_t stream);

std::size_t short_gradients_bytes(const ops::RecurrentAttentionProblem& problem);
/// Queues the gradients of sequences of up to `most` tokens, behind what else writes to their rows.
/// `memory` is of short_gradients_bytes().
void launch_short_gradients(const ops::RecurrentAttentionProblem& problem,
                            const ops::RecurrentAttentionBackwardArgs& args, std::int64_t most,
                            const GammaOutput& dgamma, std::byte* memory, cudaStream_t stream);

}  // namespace attune::cuda::pairs
