// The sums of the log decays of whole sequences, as summaries of states have them: of all gates but
// gv for every key channel, and of gv for every value channel.
//
// Blocks sum up parts of sequences (sequence_parts.hpp), and parts are added in their order, all in
// double: a sum over a million tokens is rounded to fp32 once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <attune/ops/state_summary_op.hpp>

#include "cuda/chunks/views.hpp"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda {

/// Tokens of a part: enough that adding parts costs little, few enough to fill the device.
inline constexpr std::int64_t kTokensOfDecaySum = 512;

struct DecaySumParams {
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;
  std::int64_t keys = 0;    // K
  std::int64_t values = 0;  // V, or 0 where gv is not given

  GateView shared_gate;  // g
  GateView key_gate;
  GateView value_gate;
  ConstantDecayView gamma;

  StateView key_sums;       // as key_sums_view() has them
  StateView value_sums;     // none where gv is not given
  double* parts = nullptr;  // [parts, columns()]: of g, then of gk, then of gv

  // What is summed up for a token: a column for each head of a gate and each of its channels.
  constexpr std::int64_t shared_columns() const { return shared_gate.given() ? heads : 0; }
  constexpr std::int64_t key_columns() const { return key_gate.given() ? heads * keys : 0; }
  constexpr std::int64_t value_columns() const { return heads * values; }
  constexpr std::int64_t columns() const {
    return shared_columns() + key_columns() + value_columns();
  }
  constexpr std::int64_t part_count() const {
    return cuda::part_count(sequence_count, sequences.tokens, sequences.bounds != nullptr,
                            kTokensOfDecaySum);
  }
};

/// Of a call, but for `parts`.
inline DecaySumParams decay_sums(const ops::StateSummaryProblem& problem,
                                 const ops::StateSummaryArgs& args) {
  return {.sequences = sequences_view(args.cu_seqlens, problem.T),
          .sequence_count = problem.sequences(),
          .heads = problem.H,
          .keys = problem.K,
          .values = args.gv_sum ? problem.V : 0,
          .shared_gate = gate_view(args.g),
          .key_gate = gate_view(args.gk),
          .value_gate = gate_view(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .key_sums = key_sums_view<StateView>(args.gk_sum),
          .value_sums = args.gv_sum ? value_sums_view<StateView>(*args.gv_sum) : StateView{}};
}

/// Bytes of `parts`.
inline std::int64_t decay_sum_bytes(const ops::StateSummaryProblem& problem) {
  const std::int64_t columns = ((problem.gates & ops::kGateG) != 0 ? 1 : 0) +
                               ((problem.gates & ops::kGateGk) != 0 ? problem.K : 0) +
                               ((problem.gates & ops::kGateGv) != 0 ? problem.V : 0);
  const std::int64_t parts =
      part_count(problem.sequences(), problem.T, problem.N > 0, kTokensOfDecaySum);
  return parts * problem.H * columns * static_cast<std::int64_t>(sizeof(double));
}

/// Queues the sums for an element type of gates: float, __half or __nv_bfloat16.
template <class T>
void launch_decay_sums(const DecaySumParams& params, cudaStream_t stream);

}  // namespace attune::cuda
