// Rows of a caller's tensor as fp32, whatever they are stored as.
#pragma once

#include "cpu/simd/vector.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// The rows of one head of a token tensor, in the order in which the recurrence visits them.
template <class Byte>
struct Rows {
  Byte* data = nullptr;
  std::int64_t step = 0;  // in bytes, negative when going backwards
  StorageType type = StorageType::kF32;

  [[gnu::always_inline]] Byte* row(std::int64_t token) const { return data + token * step; }
};
using InputRows = Rows<const char>;
using OutputRows = Rows<char>;

// The rows of `tokens` tokens from the last one on.
template <class Byte>
Rows<Byte> from_the_end(const Rows<Byte>& rows, std::int64_t tokens) {
  if (!rows.data) return {};
  return {.data = rows.row(tokens - 1), .step = -rows.step, .type = rows.type};
}

constexpr std::int64_t round_up_to_lanes(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// Whether a row can be accessed where it lies, by whole vectors.
[[gnu::always_inline]] inline bool is_direct(StorageType type, std::int64_t elements) {
  return type == StorageType::kF32 && elements % kLanes == 0;
}

[[gnu::always_inline]] inline F32 widen(StorageType type, const char* source) {
  if (type == StorageType::kF32) {
    F32 x;
    __builtin_memcpy(&x, source, sizeof(x));
    return x;
  }
  U16 half;
  __builtin_memcpy(&half, source, sizeof(half));
  return type == StorageType::kBF16 ? widen_bf16(half) : widen_f16(half);
}

[[gnu::always_inline]] inline void narrow(StorageType type, F32 x, char* target) {
  if (type == StorageType::kF32) {
    __builtin_memcpy(target, &x, sizeof(x));
    return;
  }
  const U16 half = type == StorageType::kBF16 ? narrow_bf16(x) : narrow_f16(x);
  __builtin_memcpy(target, &half, sizeof(half));
}

// Copies the bytes of less than a vector.
[[gnu::always_inline]] inline void copy_tail(const char* source, std::int64_t bytes, char* target) {
  for (std::int64_t i = 0; i < bytes; ++i) target[i] = source[i];
}

// `elements` of a row, filled up with zeros to whole vectors.
[[gnu::noinline]] inline void widen_row(StorageType type, const char* row, std::int64_t elements,
                                        float* target) {
  const std::int64_t size = size_of(type);
  const std::int64_t whole = elements / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) store(target + i, widen(type, row + i * size));
  if (whole == elements) return;
  char tail[kLanes * sizeof(float)] = {};
  copy_tail(row + whole * size, (elements - whole) * size, tail);
  store(target + whole, widen(type, tail));
}

[[gnu::noinline]] inline void narrow_row(StorageType type, const float* source,
                                         std::int64_t elements, char* row) {
  const std::int64_t size = size_of(type);
  const std::int64_t whole = elements / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) narrow(type, load(source + i), row + i * size);
  if (whole == elements) return;
  char tail[kLanes * sizeof(float)];
  narrow(type, load(source + whole), tail);
  copy_tail(tail, (elements - whole) * size, row + whole * size);
}

// A row of `elements` as fp32, by whole vectors: the row itself or a copy in `buffer`.
[[gnu::always_inline]] inline const float* widened(const InputRows& rows, std::int64_t token,
                                                   std::int64_t elements, float* buffer) {
  const char* row = rows.row(token);
  // An fp32 tensor holds floats, aligned as such.
  if (is_direct(rows.type, elements)) return reinterpret_cast<const float*>(row);
  widen_row(rows.type, row, elements, buffer);
  return buffer;
}

inline float widened_scalar(const InputRows& rows, std::int64_t token) {
  const char* source = rows.row(token);
  float value = 0.0F;
  if (rows.type == StorageType::kF32) {
    __builtin_memcpy(&value, source, sizeof(value));
  } else {
    std::uint16_t half = 0;
    __builtin_memcpy(&half, source, sizeof(half));
    value =
        (rows.type == StorageType::kBF16 ? widen_bf16(U16{} + half) : widen_f16(U16{} + half))[0];
  }
  return value;
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
