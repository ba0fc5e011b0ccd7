// One head of one sequence in the backward pass: where its rows are and what it works in.
#pragma once

#include "backward_params.hpp"
#include "cpu/simd/vector/rows.inl.hpp"
#include "cpu/simd/vector/task.inl.hpp"
#include "gradients.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

using simd::recurrent_attention::backward::Instance;
using simd::recurrent_attention::backward::Params;
using simd::recurrent_attention::backward::Scratch;

// The channels of K or those of V, over all tokens.
struct BackwardSide {
  // q, k and gates as the names of the key side have them; do, v and gv for the channels of V.
  KeySide in;
  std::int64_t channels = 0;
  std::int64_t width = 0;            // the same in whole vectors
  OutputRows dreads;                 // dq; none for V, as o is not wanted
  OutputRows dwrites;                // dk or dv
  OutputRows dgates;                 // dgk or dgv
  RowDecay decay = RowDecay::kNone;  // what has one has the gradients of its gates
  float* coefficients = nullptr;
  float* sums[2] = {};
  float* terms = nullptr;
  float* gate = nullptr;
  float* group_sum = nullptr;
};

// Which of its group's heads this is: dk and dv are summed over them in this order.
struct GroupPlace {
  bool is_first = true;
  bool is_last = true;
};

struct BackwardTask {
  std::int64_t tokens = 0;
  bool stream = false;
  GroupPlace place;
  BackwardSide keys, values;
  OutputRows dg;
  float* value_pairs = nullptr;
  Matrix state, dstate;
  float* checkpoints = nullptr;
  StateView<const float*> initial, dfinal;  // transposed, as the next
  StateView<float*> dinitial;
  double* dgamma = nullptr;
};

// Those of the pass that begins with `token`. The vector that sum_lanes() writes reaches into the
// place of the pass behind it, which the first sweep has not made yet.
inline float* value_pairs_of(const BackwardTask& task, std::int64_t token) {
  return task.value_pairs + token * Scratch::kPairsPerToken;
}

inline KeySide side_memory(const Scratch::Side& at, std::int64_t channels, bool decays_differ,
                           float* scratch) {
  KeySide side;
  side.rows = channels;
  side.q_rows = scratch + at.reads;
  side.k_rows = scratch + at.writes;
  side.decays = {.of_token = scratch + at.decays,
                 .total = scratch + at.totals,
                 .carry = scratch + at.carries,
                 .width = decays_differ ? round_up_to_lanes(channels) : kLanes};
  return side;
}

inline BackwardSide backward_side(const Scratch::Side& at, std::int64_t channels,
                                  bool decays_differ, float* scratch) {
  BackwardSide side;
  side.in = side_memory(at, channels, decays_differ, scratch);
  side.channels = channels;
  side.width = round_up_to_lanes(channels);
  side.coefficients = scratch + at.coefficients;
  for (int turn : {0, 1}) side.sums[turn] = scratch + at.sums[turn];
  side.terms = scratch + at.terms;
  side.gate = scratch + at.gate;
  side.group_sum = scratch + at.group_sum;
  return side;
}

inline BackwardSide backward_keys(const Params& p, const TaskRange& range, float* scratch) {
  const ForwardParams& f = p.forward;
  BackwardSide side = backward_side(p.scratch.keys, f.key_dim, f.gk.data != nullptr, scratch);
  side.in.q = rows_of<const char>(f.q, range, range.head, 0);
  side.in.k = rows_of<const char>(f.k, range, range.kv_head, 0);
  side.in.g = rows_of<const char>(f.g, range, range.head, 0);
  side.in.gk = rows_of<const char>(f.gk, range, range.head, 0);
  if (f.g_gamma) {
    side.in.gamma =
        f.g_gamma[range.sequence * f.g_gamma_sequence_stride + range.head * f.g_gamma_head_stride];
  }
  side.in.scale = f.scale;
  side.in.has_decay = has_key_decay(f);
  side.in.balance = balance_of(f, range, 1.0F);
  if (side.in.has_decay) side.decay = f.gk.data ? RowDecay::kPerRow : RowDecay::kShared;
  side.dreads = rows_of<char>(p.dq, range, range.head, 0);
  side.dwrites = rows_of<char>(p.dk, range, range.kv_head, 0);
  side.dgates = rows_of<char>(p.dgk, range, range.head, 0);
  return side;
}

inline BackwardSide backward_values(const Params& p, const TaskRange& range, float* scratch) {
  const ForwardParams& f = p.forward;
  BackwardSide side = backward_side(p.scratch.values, f.value_dim, true, scratch);
  side.in.q = rows_of<const char>(p.d_o, range, range.head, 0);
  if (!p.d_o.data) {
    float* const zeros = scratch + p.scratch.zeros;
    for (std::int64_t j = 0; j < side.width; ++j) zeros[j] = 0.0F;
    side.in.q = {.data = reinterpret_cast<const char*>(zeros)};  // read as the floats they are
  }
  side.in.k = rows_of<const char>(f.v, range, range.kv_head, 0);
  side.in.gk = rows_of<const char>(f.gv, range, range.head, 0);
  side.in.has_decay = f.gv.data != nullptr;
  side.in.balance = balance_of(f, range, -1.0F);
  if (side.in.has_decay) side.decay = RowDecay::kPerRow;
  side.dwrites = rows_of<char>(p.dv, range, range.kv_head, 0);
  side.dgates = rows_of<char>(p.dgv, range, range.head, 0);
  return side;
}

// The state as [V, K], as the kernel keeps it.
template <class Pointer>
StateView<Pointer> transposed(const StateView<Pointer>& state) {
  return {.data = state.data, .key_stride = state.value_stride, .value_stride = state.key_stride};
}

inline BackwardTask backward_task(const Params& p, std::int64_t sequence, std::int64_t head,
                                  float* scratch) {
  const ForwardParams& f = p.forward;
  const TaskRange range = head_range(f, sequence, head);
  const std::int64_t group = f.heads / f.kv_heads;
  BackwardTask task;
  task.tokens = range.tokens;
  task.stream = p.stream;
  task.place = {.is_first = head % group == 0, .is_last = head % group == group - 1};
  task.keys = backward_keys(p, range, scratch);
  task.values = backward_values(p, range, scratch);
  task.dg = rows_of<char>(p.dg, range, head, 0);
  task.state = {scratch + p.scratch.state, f.value_dim, task.keys.width};
  task.dstate = {scratch + p.scratch.dstate, f.value_dim, task.keys.width};
  task.value_pairs = scratch + p.scratch.value_pairs;
  task.checkpoints = scratch + p.scratch.checkpoints;
  task.initial = transposed(state_of(f.initial_state, range));
  task.dfinal = transposed(state_of(p.dfinal_state, range));
  task.dinitial = transposed(state_of(p.dinitial_state, range));
  if (p.dgamma) task.dgamma = p.dgamma + sequence * f.heads + head;
  return task;
}

// What each sweep reads and writes, fetched from token `first` of the sweep on.
inline Prefetcher forward_prefetcher(const BackwardTask& task, std::int64_t first) {
  Prefetcher prefetcher(first);
  for (const BackwardSide* side : {&task.keys, &task.values}) {
    prefetcher.add(side->in.q, side->channels);
    prefetcher.add(side->in.k, side->channels);
    prefetcher.add(side->in.gk, side->channels);
    if (!task.stream) prefetcher.add(side->dreads, side->channels);
  }
  return prefetcher;
}

inline Prefetcher backward_prefetcher(const BackwardTask& task, std::int64_t first) {
  Prefetcher prefetcher(first);
  if (task.tokens == 0) return prefetcher;
  for (const BackwardSide* side : {&task.keys, &task.values}) {
    prefetcher.add(from_the_end(side->in.q, task.tokens), side->channels);
    prefetcher.add(from_the_end(side->in.k, task.tokens), side->channels);
    prefetcher.add(from_the_end(side->in.gk, task.tokens), side->channels);
    if (task.stream) continue;
    prefetcher.add(from_the_end(side->dgates, task.tokens), side->channels);
    prefetcher.add(from_the_end(side->dwrites, task.tokens), side->channels);
  }
  return prefetcher;
}

// All columns of a transposed state as one block.
inline BlockRange whole_block(const BackwardSide& keys) {
  return {.first = 0, .count = keys.channels, .vectors = static_cast<int>(keys.width / kLanes)};
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
