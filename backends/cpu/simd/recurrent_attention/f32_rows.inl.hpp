// Rows of fp32, each readable by whole vectors: in a caller's tensor or in scratch memory.
#pragma once

#include "cpu/simd/rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

template <class Float>
struct F32Rows {
  Float* data = nullptr;
  std::int64_t step = 0;  // in floats

  [[gnu::always_inline]] Float* row(std::int64_t token) const { return data + token * step; }
};

// The rows from `token` on of a tensor that is_direct(): it holds floats, aligned as such.
template <class Float, class Byte>
[[gnu::always_inline]] inline F32Rows<Float> direct_rows(const Rows<Byte>& rows,
                                                         std::int64_t token) {
  return {reinterpret_cast<Float*>(rows.row(token)), rows.step / std::int64_t{sizeof(float)}};
}

// kTokens rows from `token` on: themselves, or copies in `buffer`.
template <int kTokens>
[[gnu::always_inline]] inline F32Rows<const float> widened_rows(const InputRows& rows,
                                                                std::int64_t token,
                                                                std::int64_t elements,
                                                                const F32Rows<float>& buffer) {
  if (is_direct(rows.type, elements)) return direct_rows<const float>(rows, token);
  for (int t = 0; t < kTokens; ++t) {
    widen_row(rows.type, rows.row(token + t), elements, buffer.row(t));
  }
  return {buffer.data, buffer.step};
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
