// A task's sequence, cut where a state on its way is kept, and its states at both ends of a part.
//
// A segment is a sequence of its own to a kernel: it starts from a state and ends in one. Where a
// snapshot is kept the segment before ends in its slot and the next one starts from there, so the
// walk itself writes it and every chunk of tokens begins where it would have begun.
//
// States of 16 bits are copied: a task works on fp32 in scratch memory, read before the first
// segment and rounded where a state is kept. What goes on from segment to segment is not rounded.
#pragma once

#include <attune/core/state_rounding.hpp>

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// ---- segments ----

struct Segment {
  std::int64_t first = 0;  // tokens of the sequence in front of it
  std::int64_t tokens = 0;
  std::int64_t from = -1;  // the slot of the snapshot in front of it
  std::int64_t to = -1;    // of the one that it ends in; of the last segment, none
  bool is_last = true;
};

inline std::int64_t slot_at(const SlotIndices& slots, std::int64_t sequence,
                            std::int64_t snapshot = 0) {
  if (!slots.data) return sequence;
  const std::int64_t at = sequence * slots.sequence_stride + snapshot * slots.snapshot_stride;
  return slots.is_wide ? static_cast<const std::int64_t*>(slots.data)[at]
                       : static_cast<const std::int32_t*>(slots.data)[at];
}

// The segment from token `first` on, a multiple of snapshot_every, of a sequence of `tokens`.
inline Segment segment_from(const ForwardParams& p, std::int64_t sequence, std::int64_t tokens,
                            std::int64_t first, std::int64_t from) {
  Segment segment{.first = first, .tokens = tokens - first, .from = from};
  if (p.snapshot_every == 0) return segment;
  for (std::int64_t m = first / p.snapshot_every; m < p.snapshots; ++m) {
    const std::int64_t end = (m + 1) * p.snapshot_every;
    if (end > tokens) break;
    const std::int64_t slot = slot_at(p.snapshot_slots, sequence, m);
    if (slot < 0) continue;
    segment.tokens = end - first;
    segment.to = slot;
    segment.is_last = false;
    break;
  }
  return segment;
}

inline Segment first_segment(const ForwardParams& p, const TaskRange& sequence) {
  return segment_from(p, sequence.sequence, sequence.tokens, 0, -1);
}

inline Segment next_segment(const ForwardParams& p, const TaskRange& sequence,
                            const Segment& segment) {
  return segment_from(p, sequence.sequence, sequence.tokens, segment.first + segment.tokens,
                      segment.to);
}

inline TaskRange range_of(const TaskRange& sequence, const Segment& segment) {
  TaskRange range = sequence;
  range.first_token += sequence.reverse ? -segment.first : segment.first;
  range.tokens = segment.tokens;
  return range;
}

// ---- states of 16 bits ----

// One head's state in fp32: [K, width], of which `columns` exist.
struct StagedState {
  float* data = nullptr;
  std::int64_t width = 0;  // whole vectors
  std::int64_t columns = 0;
};

// `count` elements of a row, one after the other, as whole vectors of fp32.
inline void widen_state(const StoredState<const char>& from, std::int64_t rows,
                        const StagedState& to) {
  constexpr std::int64_t kSize = 2;
  for (std::int64_t i = 0; i < rows; ++i) {
    const char* const row = from.data + i * from.key_stride * kSize;
    float* const target = to.data + i * to.width;
    if (from.value_stride == 1) {
      widen_row(from.type, row, to.columns, target);
      continue;
    }
    const InputRows elements{.data = row, .step = from.value_stride * kSize, .type = from.type};
    for (std::int64_t j = 0; j < to.columns; ++j) target[j] = widened_scalar(elements, j);
  }
}

inline void round_row_at_random(StorageType type, const float* row, std::int64_t first,
                                std::int64_t columns, const state_rounding::RowKey& key,
                                std::uint16_t* target) {
  for (std::int64_t j = 0; j < columns; ++j) {
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, row + j, sizeof bits);
    const std::uint32_t random =
        state_rounding::random_bits(key, static_cast<std::uint32_t>(first + j));
    target[j] = static_cast<std::uint16_t>(type == StorageType::kBF16
                                               ? state_rounding::to_bf16(bits, random)
                                               : state_rounding::to_f16(bits, random));
  }
}

inline void round_state(const ForwardParams& p, const StagedState& from, const TaskRange& range,
                        std::int64_t slot, const StoredState<char>& to) {
  constexpr std::int64_t kSize = 2;
  constexpr std::int64_t kPart = 64;
  std::uint16_t rounded[kPart];
  for (std::int64_t i = 0; i < p.key_dim; ++i) {
    const float* const row = from.data + i * from.width;
    char* const target = to.data + i * to.key_stride * kSize;
    const auto key =
        state_rounding::row_key(p.rounding_seed, (slot * p.heads + range.head) * p.key_dim + i);
    for (std::int64_t first = 0; first < from.columns; first += kPart) {
      const std::int64_t left = from.columns - first;
      const std::int64_t columns = left < kPart ? left : kPart;
      if (p.rounds_at_random) {
        round_row_at_random(to.type, row + first, range.column + first, columns, key, rounded);
      } else {
        narrow_row(to.type, row + first, columns, reinterpret_cast<char*>(rounded));
      }
      for (std::int64_t j = 0; j < columns; ++j) {
        __builtin_memcpy(target + (first + j) * to.value_stride * kSize, rounded + j, kSize);
      }
    }
  }
}

// ---- the states of a segment ----

struct SegmentStates {
  StateView<const float*> initial;
  StateView<float*> final;
};

inline std::int64_t initial_slot(const ForwardParams& p, const Segment& segment,
                                 std::int64_t sequence) {
  return segment.first > 0 ? segment.from : slot_at(p.initial_slots, sequence);
}

inline std::int64_t final_slot(const ForwardParams& p, const Segment& segment,
                               std::int64_t sequence) {
  return segment.is_last ? slot_at(p.final_slots, sequence) : segment.to;
}

// Where a segment reads and writes its state. `staged` is used where states are of 16 bits, and is
// left alone in between.
inline SegmentStates begin_segment(const ForwardParams& p, const TaskRange& range,
                                   const Segment& segment, const StagedState& staged) {
  const std::int64_t read = initial_slot(p, segment, range.sequence);
  const auto final =
      stored_state<char>(p.final_state, final_slot(p, segment, range.sequence), range);
  if (segment.first > 0) {
    // A snapshot lies in the pool, which is both.
    const StateView<float*> in_scratch{staged.data, staged.width, 1};
    if (p.final_state.type == StorageType::kF32) {
      return {as_floats<const float>(stored_state<char>(p.final_state, read, range)),
              as_floats<float>(final)};
    }
    return {{in_scratch.data, in_scratch.key_stride, 1},
            final.data ? in_scratch : StateView<float*>{}};
  }
  const auto initial = stored_state<const char>(p.initial_state, read, range);
  SegmentStates states;
  if (initial.type == StorageType::kF32) {
    states.initial = as_floats<const float>(initial);
  } else {
    widen_state(initial, p.key_dim, staged);
    states.initial = {staged.data, staged.width, 1};
  }
  if (final.type == StorageType::kF32) {
    states.final = as_floats<float>(final);
  } else {
    states.final = {staged.data, staged.width, 1};
  }
  return states;
}

inline void end_segment(const ForwardParams& p, const TaskRange& range, const Segment& segment,
                        const StagedState& staged) {
  const std::int64_t slot = final_slot(p, segment, range.sequence);
  const auto final = stored_state<char>(p.final_state, slot, range);
  if (final.type != StorageType::kF32) round_state(p, staged, range, slot, final);
}

// Calls run(range, states) for each segment of a sequence, one head and tile of V.
template <class Run>
void for_each_segment(const ForwardParams& p, const TaskRange& sequence, const StagedState& staged,
                      const Run& run) {
  for (Segment segment = first_segment(p, sequence);;
       segment = next_segment(p, sequence, segment)) {
    const TaskRange range = range_of(sequence, segment);
    run(range, begin_segment(p, range, segment, staged));
    end_segment(p, range, segment, staged);
    if (segment.is_last) return;
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
