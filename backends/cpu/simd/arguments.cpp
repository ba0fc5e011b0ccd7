#include "arguments.hpp"

#include <algorithm>

namespace attune::cpu::simd {

StorageType storage_type(DType dtype) {
  if (dtype == DType::kF32) return StorageType::kF32;
  return dtype == DType::kF16 ? StorageType::kF16 : StorageType::kBF16;
}

std::int64_t integer_at(const ConstTensorView& view, std::int64_t index) {
  const std::int64_t offset = index * view.stride(0);
  return view.dtype == DType::kI64 ? static_cast<const std::int64_t*>(view.data)[offset]
                                   : static_cast<const std::int32_t*>(view.data)[offset];
}

const std::int64_t* clamped_bounds(const ConstTensorView& cu_seqlens, std::int64_t tokens,
                                   std::byte* memory) {
  auto* const bounds = reinterpret_cast<std::int64_t*>(memory);  // aligned by reserve_aligned()
  std::int64_t least = 0;
  for (std::int64_t n = 0; n < cu_seqlens.size(0); ++n) {
    least = bounds[n] = std::clamp(integer_at(cu_seqlens, n), least, tokens);
  }
  return bounds;
}

Gamma gamma_values(const ops::ConstantDecay& gamma, std::int64_t sequences, std::int64_t heads,
                   std::byte* memory) {
  using Source = ops::ConstantDecay::Source;
  if (gamma.source == Source::kNone || sequences == 0) return {};
  const bool shared = gamma.source == Source::kLayer || gamma.values.stride(0) == 0;
  auto* const values = reinterpret_cast<float*>(memory);  // aligned by reserve_aligned()
  for (std::int64_t n = 0; n < (shared ? 1 : sequences); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      values[n * heads + h] = static_cast<float>(ops::gamma_of(gamma, n, h, heads));
    }
  }
  return {.values = values, .sequence_stride = shared ? 0 : heads};
}

}  // namespace attune::cpu::simd
