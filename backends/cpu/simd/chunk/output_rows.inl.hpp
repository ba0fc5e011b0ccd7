// Rows of a caller's output, written through the caches or past them.
//
// Past them saves reading the lines that are overwritten, which pays where the output fits no cache
// and costs where it does.
#pragma once

#include "cpu/simd/rows.inl.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
