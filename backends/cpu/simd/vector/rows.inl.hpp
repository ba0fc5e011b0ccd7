// Rows of a caller's tensor as fp32, whatever they are stored as.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "vector.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

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

// ---- rows of fp32 ----
//
// Rows of fp32, each readable by whole vectors: in a caller's tensor or in scratch memory.

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

// ---- rows of an output ----
//
// Rows of a caller's output, written through the caches or past them.
//
// Past them saves reading the lines that are overwritten, which pays where the output fits no cache
// and costs where it does.

// One vector of fp32 or of 16-bit elements. `target` is aligned to its size.
[[gnu::always_inline]] inline void stream_vector(F32 x, char* target) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  _mm512_stream_ps(reinterpret_cast<float*>(target), (__m512)x);
#elif defined(__AVX__) && ATTUNE_SIMD_LANES == 8
  _mm256_stream_ps(reinterpret_cast<float*>(target), (__m256)x);
#elif defined(__x86_64__) && ATTUNE_SIMD_LANES == 4
  _mm_stream_ps(reinterpret_cast<float*>(target), (__m128)x);
#else
  __builtin_memcpy(target, &x, sizeof(x));
#endif
}

// Two vectors of 16-bit elements make one vector.
[[gnu::always_inline]] inline F32 narrow_pair(StorageType type, const float* source) {
  U16 halves[2];
  for (int i = 0; i < 2; ++i) {
    const F32 x = load(source + i * kLanes);
    halves[i] = type == StorageType::kBF16 ? narrow_bf16(x) : narrow_f16(x);
  }
  F32 pair;
  __builtin_memcpy(&pair, halves, sizeof(pair));
  return pair;
}

// Whole vectors of `elements`, from `source` on; returns how many elements it wrote.
[[gnu::noinline]] inline std::int64_t stream_row(StorageType type, const float* source,
                                                 std::int64_t elements, char* row) {
  std::int64_t i = 0;
  if (type == StorageType::kF32) {
    for (; elements - i >= kLanes; i += kLanes) stream_vector(load(source + i), row + i * 4);
  } else {
    for (; elements - i >= 2 * kLanes; i += 2 * kLanes) {
      stream_vector(narrow_pair(type, source + i), row + i * 2);
    }
  }
  return i;
}

// `elements` of a row. Past the caches where `stream` and the row begins at a whole vector.
[[gnu::always_inline]] inline void write_row(StorageType type, const float* source,
                                             std::int64_t elements, char* row, bool stream) {
  std::int64_t done = 0;
  if (stream && reinterpret_cast<std::uintptr_t>(row) % sizeof(F32) == 0) {
    done = stream_row(type, source, elements, row);
  }
  if (done < elements) narrow_row(type, source + done, elements - done, row + done * size_of(type));
}

// Other threads may read what was streamed once this has returned and they are told so.
[[gnu::always_inline]] inline void streamed_writes_done() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
