// The recurrent backward kernel, compiled once per instruction set.
//
// Two sweeps over the tokens of a head, a few tokens a pass. The first goes with the recurrence,
// recomputes the state and turns it into dq; it leaves the state at the end of each segment and the
// terms q dq behind where there are gates. The second goes against it with the gradient of the
// state and makes dk, dv and the gates' gradients of it. That is 5 n + 2 multiply-adds an element
// of the state and n tokens, where the forward pass does 2 n + 1.
#pragma once

#include "token_passes.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

inline void copy_matrix(const Matrix& from, float* to) {
  for (std::int64_t i = 0; i < from.rows * from.width; i += kLanes) {
    store(to + i, load(from.data + i));
  }
}

// No rounding has been carried over to the sweep that begins.
inline void reset_carries(const BackwardSide& side) {
  for (std::int64_t i = 0; i < side.in.decays.width; ++i) side.in.decays.carry[i] = 0.0F;
}

template <int kTokens>
void sweep_forward(const BackwardTask& task, std::int64_t segment_tokens, bool has_gates) {
  const std::int64_t size = task.state.rows * task.state.width;
  read_block(task.initial, task.state.rows, whole_block(task.keys), task.state.data);
  reset_carries(task.keys);
  reset_carries(task.values);
  Sweep sweep{.traffic = {.fetched = forward_prefetcher(task, kTokens), .pending = {}}};
  for (std::int64_t begin = 0; begin < task.tokens; begin += segment_tokens) {
    if (begin > 0 && has_gates) {
      copy_matrix(task.state, task.checkpoints + (begin / segment_tokens - 1) * size);
    }
    const std::int64_t end = begin + segment_tokens;
    forward_passes<kTokens>(task, begin, end < task.tokens ? end : task.tokens, sweep);
  }
  sweep.traffic.pending.write(sweep.traffic.pending.count());
}

inline void sum_gates_anew(const BackwardTask& task, const float* state_after) {
  const BackwardSide& keys = task.keys;
  if (keys.decay != RowDecay::kNone) sum_product_columns(task.dstate, state_after, keys.gate);
  if (keys.decay == RowDecay::kShared) fold_vectors(keys.gate, keys.width);
  if (task.values.decay != RowDecay::kNone)
    sum_product_rows(task.dstate, state_after, task.values.gate);
}

// The gradient of what all channels of K decay by, at the current token.
inline double carried_gate(const BackwardTask& task) {
  return sum_of(task.keys.gate, task.keys.in.decays.width);
}

// Before the first of `tokens` tokens that the gates were carried on over.
inline void end_segment(const BackwardTask& task, const float* state_before, std::int64_t tokens) {
  const double carried = task.dgamma ? carried_gate(task) : 0.0;
  sum_gates_anew(task, state_before);
  if (task.dgamma) *task.dgamma -= excess_of_segment(carried, carried_gate(task), tokens);
}

template <int kTokens>
void sweep_backward(const BackwardTask& task, std::int64_t segment_tokens) {
  const std::int64_t size = task.state.rows * task.state.width;
  read_block(task.dfinal, task.dstate.rows, whole_block(task.keys), task.dstate.data);
  reset_carries(task.keys);
  reset_carries(task.values);
  Sweep sweep{.traffic = {.fetched = backward_prefetcher(task, kTokens), .pending = {}}};
  sum_gates_anew(task, task.state.data);
  for (std::int64_t end = task.tokens; end > 0;) {
    const std::int64_t segment = (end - 1) / segment_tokens;
    const std::int64_t begin = segment * segment_tokens;
    backward_passes<kTokens>(task, begin, end, sweep);
    if (segment > 0) {
      end_segment(task, task.checkpoints + (segment - 1) * size, end - begin);
    } else if (task.dgamma) {
      read_block(task.initial, task.state.rows, whole_block(task.keys), task.state.data);
      end_segment(task, task.state.data, end);
    }
    end = begin;
  }
  sweep.traffic.pending.write(sweep.traffic.pending.count());
}

template <int kTokens>
void run_backward_head(const BackwardTask& task, std::int64_t segment_tokens) {
  if (task.dgamma) *task.dgamma = 0.0;
  sweep_forward<kTokens>(task, segment_tokens, task.keys.in.has_decay || task.values.in.has_decay);
  sweep_backward<kTokens>(task, segment_tokens);
  if (!task.dinitial.data) return;
  write_block(task.dinitial, task.dstate.rows, whole_block(task.keys), task.dstate.data);
}

inline void run_backward_tasks(const Params& params, std::int64_t first_task,
                               std::int64_t last_task, float* scratch) {
  const std::int64_t heads_per_kv = params.forward.heads / params.forward.kv_heads;
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const std::int64_t sequence = index / params.forward.kv_heads;
    const std::int64_t first_head = index % params.forward.kv_heads * heads_per_kv;
    for (std::int64_t head = first_head; head < first_head + heads_per_kv; ++head) {
      const BackwardTask task = backward_task(params, sequence, head, scratch);
      with_tokens_per_pass(params.tokens_per_pass, [&]<int kTokens>() {
        run_backward_head<kTokens>(task, params.segment_tokens);
      });
    }
  }
  if (params.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_backward_tasks}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
