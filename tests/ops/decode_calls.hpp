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

/// By slopes.
struct LightningDecodeCall : DecodeInputs<ops::LightningDecodeOptions> {
  LightningDecodeCall() { options.slopes = memory.f32({kH}); }
  void run() { ops::lightning_decode_into(o, q, k, v, state, options); }
};

}  // namespace attune::test
