// The same kernel compiled for several instruction sets; chunk_forward() picks one.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::chunk {

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
/// `padded` is K in whole panels.
struct Scratch {
  std::int64_t state = 0;       // [padded, tile], and behind it [chunk, tile]: v
  std::int64_t reads = 0;       // panels [chunk, padded + chunk], as the next two
  std::int64_t relative = 0;    // [chunk, padded]
  std::int64_t writes = 0;      // [chunk, padded]
  std::int64_t from_start = 0;  // [chunk], as the next
  std::int64_t to_end = 0;
  std::int64_t key_decays = 0;    // [padded], as the next
  std::int64_t key_carries = 0;   //
  std::int64_t key_log_sums = 0;  // [padded], with a gk, as the next
  std::int64_t key_from_start = 0;
  std::int64_t block_decays = 0;  // [chunk / 4, padded], with a gk
  std::int64_t q_rows = 0;        // [chunk, K], for rows that cannot be read where they lie
  std::int64_t k_rows = 0;
  std::int64_t gk_rows = 0;
  std::int64_t v_rows = 0;  // [chunk, tile], as the next two
  std::int64_t gv_rows = 0;
  std::int64_t o_rows = 0;
  std::int64_t value_decays = 0;  // [tile], as the next
  std::int64_t value_carries = 0;
  // For products of bf16 pairs: operands once more, as pairs.
  std::int64_t state_pairs = 0;  // [K in whole 32s / 2, tile], and behind it [chunk / 2, tile]: v
  std::int64_t read_pairs = 0;   // panels [chunk, (K in whole 32s + chunk in whole 32s) / 2]
  std::int64_t write_pairs = 0;  // panels [chunk / 2, padded]
  std::int64_t staged = 0;       // [K, tile], with states of 16 bits
  std::int64_t zeros = 0;        // a row of K or of a tile
  std::int64_t size = 0;
};

/// A Config as far as it reaches the kernel.
struct Tiling {
  std::int64_t chunk = 16;
  std::int64_t tile_v = 0;  // whole vectors
  std::int64_t tiles = 0;   // over V
  bool prefetch = false;
  bool stream = false;
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, head, tile of V), tile fastest.
  /// `scratch` is aligned to 64 bytes and used by no other
  /// thread; it need not be initialised.
  void (*run)(const Tiling& tiling, const ForwardParams& params, std::int64_t first,
              std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::chunk
