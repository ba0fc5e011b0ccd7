// Legal calls of recurrent_decode, for tests to break.
#pragma once

#include <attune/ops/lightning_decode.hpp>
#include <attune/ops/recurrent_decode.hpp>

#include "ops/attention_calls.hpp"

namespace attune::test {

inline constexpr std::int64_t kRows = 3, kSlots = 5;

/// Members to be replaced at will.
template <class Options>
struct DecodeInputs {
  Memory memory;
  TensorView q = memory.f32({kRows, kH, kK});
  TensorView k = memory.f32({kRows, kHkv, kK});
  TensorView v = memory.f32({kRows, kHkv, kV});
  TensorView state = memory.f32({kSlots, kH, kK, kV});
  TensorView o = memory.f32({kRows, kH, kV});
  Options options;

  template <class T>
  void slots(const std::vector<T>& values) {
    options.slot_indices = memory.of(values);
  }
};

struct DecodeCall : DecodeInputs<ops::RecurrentDecodeOptions> {
  void run() { ops::recurrent_decode_into(o, q, k, v, state, options); }
};

/// A step of four tokens a row, three committed ones before them, and a pool with a slot for each.
struct TokensCall : DecodeInputs<ops::RecurrentDecodeOptions> {
  TokensCall() {
    state = memory.f32({12, kH, kK, kV});
    tokens(4);
  }
  void tokens(std::int64_t count) {
    q = memory.f32({kRows, count, kH, kK});
    k = memory.f32({kRows, count, kHkv, kK});
    v = memory.f32({kRows, count, kHkv, kV});
    o = memory.f32({kRows, count, kH, kV});
  }
  void keep() {
    kept = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    accepted = {1, 4, 2};
    options.kept_slots = memory.zeros(DType::kI64, {kRows, 4});
    options.accepted = memory.zeros(DType::kI64, {kRows});
  }
  void replay() {
    accepted = {0, 3, 1};
    options.committed = ops::CommittedTokens{.k = memory.f32({kRows, 3, kHkv, kK}),
                                             .v = memory.f32({kRows, 3, kHkv, kV}),
                                             .accepted = memory.zeros(DType::kI64, {kRows})};
  }
  /// The values as they are now, for those that are given with their right shape.
  void set_indices() {
    if (options.kept_slots && options.kept_slots->shape == Extents{kRows, 4}) {
      TensorView table = memory.of(kept);
      table.shape = {kRows, 4};
      table.strides = {4, 1};
      options.kept_slots = table;
    }
    if (options.accepted) options.accepted = memory.of(accepted);
    if (options.committed) options.committed->accepted = memory.of(accepted);
  }
  void run() {
    set_indices();
    ops::recurrent_decode_into(o, q, k, v, state, options);
  }

  std::vector<std::int64_t> kept, accepted;
};

/// By slopes.
struct LightningDecodeCall : DecodeInputs<ops::LightningDecodeOptions> {
  LightningDecodeCall() { options.slopes = memory.f32({kH}); }
  void run() { ops::lightning_decode_into(o, q, k, v, state, options); }
};

}  // namespace attune::test
