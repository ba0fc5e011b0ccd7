// Rows of o, 32 columns at a time, from sums in tiles.
#pragma once

#include "cpu/simd/vector/rows.inl.hpp"
#include "tile_keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// 32 columns of one token, `count` of which exist.
[[gnu::always_inline]] inline void write_output(F32 first, F32 second, std::int64_t count,
                                                char* target, bool stream) {
  const F32 halves = join_bf16(first, second);
  if (count < kTileDepth) {
    char tail[64];
    __builtin_memcpy(tail, &halves, sizeof(halves));
    copy_part_of_line(tail, 2 * count, target);
  } else if (stream && reinterpret_cast<std::uintptr_t>(target) % sizeof(F32) == 0) {
    stream_vector(halves, target);
  } else {
    __builtin_memcpy(target, &halves, sizeof(halves));
  }
}

// Where rows of o go, from a token of the chunk and a column on.
struct OutputBlock {
  std::int64_t token = 0;   // of the chunk
  std::int64_t column = 0;  // of the task
};

// Where a task's rows of o go.
struct OutputTarget {
  OutputRows rows;
  std::int64_t columns = 0;
  bool stream = false;
};

// Rows of o from sums in two tiles side by side. With kFactors, of rows of the chunk, in two tiles
// more: the first two times these go before.
template <bool kFactors>
struct OutputWriting {
  const OutputTarget* to = nullptr;
  const ChunkSpan* span = nullptr;
  const float* scales = nullptr;  // of rows of the chunk
  const float* factors = nullptr;
  const float* tiles = nullptr;
  OutputBlock at;

  static constexpr std::int64_t kRows = 8;  // of a part

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const std::int64_t first = index * kRows;
    const std::int64_t token = at.token + first;
    const std::int64_t left = to->columns - at.column;
    const std::int64_t columns = left < kTileDepth ? left : kTileDepth;
    const std::int64_t missing = span->present - token;
    const std::int64_t rows = missing < kRows ? missing : kRows;
    // Two tiles make 16 rows.
    const float* tile = tiles + first / kTileRows * 2 * kTileFloats + first % kTileRows * kLanes;
    char* target = to->rows.row(span->token + token) + 2 * at.column;
    for (std::int64_t t = 0; t < rows; ++t) {
      F32 left_half = load(tile);
      F32 right_half = load(tile + kTileFloats);
      if constexpr (kFactors) {
        const F32 factor = broadcast(factors[token + t]);
        left_half = fma(left_half, factor, load(tile + 2 * kTileFloats));
        right_half = fma(right_half, factor, load(tile + 3 * kTileFloats));
      }
      const F32 scale = broadcast(scales[token + t]);
      write_output(left_half * scale, right_half * scale, columns, target, to->stream);
      tile += kLanes;
      target += to->rows.step;
    }
  }
};

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
