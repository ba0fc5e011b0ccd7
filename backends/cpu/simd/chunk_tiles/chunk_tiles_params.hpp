// Where in a thread's scratch memory what lies, and what of a config reaches the kernel.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::chunk_tiles {

/// Offsets in floats, multiples of a cache line. C is the chunk; K, and V of a task, are in whole
/// 32s. A float of an operand is a pair of bf16.
struct Scratch {
  std::int64_t state = 0;        // [V / 16][K / 16] tiles of fp32
  std::int64_t state_pairs = 0;  // [2][K / 32] tiles: of 32 columns, a strip
  std::int64_t queries = 0;      // [C / 16][K / 32] tiles
  std::int64_t keys = 0;         // [C / 16][K / 32] tiles: keys as columns
  std::int64_t writes = 0;       // [K / 16][C / 32] tiles: keys as channels, decayed
  std::int64_t values = 0;       // of two strips [4][C / 32] tiles; with a gv [V / 16][C / 32]
  std::int64_t sums = 0;         // with a gk or gv [C / 16][C / 16] tiles of fp32: scores
  std::int64_t scores = 0;       // [C / 16][C / 32] tiles: the same as an operand
  std::int64_t outputs = 0;      // four tiles of fp32
  std::int64_t q_copies = 0;     // [C, K] bf16, as the next
  std::int64_t k_copies = 0;
  std::int64_t v_copies = 0;    // [C, V] bf16
  std::int64_t key_decays = 0;  // [K], as the next
  std::int64_t key_carries = 0;
  std::int64_t key_pending = 0;
  // With a gk:
  std::int64_t key_magnitudes = 0;    // [K]
  std::int64_t near_keys = 0;         // [K / 32] tiles: keys of a block, back to its beginning
  std::int64_t key_gates = 0;         // [16, K], as the next two
  std::int64_t key_token_decays = 0;  // of each token
  std::int64_t key_relative = 0;      // q from the beginning of a block on
  std::int64_t key_ends = 0;          // [C, K]: k until the end of its block
  std::int64_t key_inverses = 0;      // [K]
  std::int64_t key_block_decays = 0;  // [C / 16, K]
  // With a gv:
  std::int64_t value_gates = 0;         // [16, V]
  std::int64_t value_token_decays = 0;  // [C, V], as the next two
  std::int64_t value_reads = 0;         // from the beginning of a token's block on
  std::int64_t value_ends = 0;          // v until the end of its block, and then of later ones
  std::int64_t value_blocks = 0;        // [C / 16] times what `values` is: as each block reads them
  std::int64_t value_starts = 0;        // [C / 16 + 1, V]
  std::int64_t value_inverses = 0;      // [V], as the next two
  std::int64_t value_decays = 0;
  std::int64_t value_carries = 0;
  std::int64_t staged = 0;  // [K, tile], with states of 16 bits
  std::int64_t zeros = 0;   // a row of K or of V
  std::int64_t size = 0;
};

struct Tiling {
  std::int64_t chunk = 32;   // a multiple of 32
  std::int64_t tile_v = 32;  // columns of a task, a multiple of 32
  std::int64_t tiles = 1;    // over V
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

}  // namespace attune::cpu::simd::chunk_tiles
