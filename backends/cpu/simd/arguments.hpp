// From an op's arguments to the raw pointers and strides of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <attune/core/tensor.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/tensors.hpp"

namespace attune::cpu::simd {

inline constexpr std::size_t kCacheLineBytes = 64;  // alignment of a workspace and of its parts

/// The next `bytes` of a workspace that takes up `size` so far: where they begin, aligned.
inline std::size_t reserve_aligned(std::size_t& size, std::size_t bytes) {
  const std::size_t offset = size;
  size += (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  return offset;
}

StorageType storage_type(DType dtype);

/// A [B, T, heads, width] or [B, T, heads] tensor; a null one when it is not given.
template <class Pointer>
TokenTensor<Pointer> token_tensor(const BasicTensorView<Pointer>& view) {
  return {view.data, storage_type(view.dtype), view.stride(0), view.stride(1), view.stride(2)};
}

template <class Pointer>
TokenTensor<Pointer> token_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? token_tensor(*view) : TokenTensor<Pointer>{};
}

/// A [B, heads, width] or [B, heads] tensor: one token a sequence.
template <class Pointer>
TokenTensor<Pointer> one_token_tensor(const BasicTensorView<Pointer>& view) {
  return {view.data, storage_type(view.dtype), view.stride(0), 0, view.stride(1)};
}

template <class Pointer>
TokenTensor<Pointer> one_token_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? one_token_tensor(*view) : TokenTensor<Pointer>{};
}

/// A [N, H, K, V] tensor of floats.
template <class Float, class Pointer>
StateTensor<Float*> state_tensor(const BasicTensorView<Pointer>& view) {
  return {static_cast<Float*>(view.data), view.stride(0), view.stride(1), view.stride(2),
          view.stride(3)};
}

template <class Float, class Pointer>
StateTensor<Float*> state_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? state_tensor<Float>(*view) : StateTensor<Float*>{};
}

/// Element `index` of an i32 or i64 vector.
std::int64_t integer_at(const ConstTensorView& view, std::int64_t index);

/// Where each packed sequence begins and ends, whatever the caller's array says: within the tokens
/// there are, and not before the one in front of it ends. `memory` takes [N + 1] int64.
const std::int64_t* clamped_bounds(const ConstTensorView& cu_seqlens, std::int64_t tokens,
                                   std::byte* memory);

/// The log decay of sequence n and head h at n * sequence_stride + h. Null when there is none.
struct Gamma {
  const float* values = nullptr;
  std::int64_t sequence_stride = 0;  // 0 where all sequences share one row
};

/// `memory` takes [sequences, heads] floats.
Gamma gamma_values(const ops::ConstantDecay& gamma, std::int64_t sequences, std::int64_t heads,
                   std::byte* memory);

}  // namespace attune::cpu::simd
