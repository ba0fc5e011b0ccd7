// The same kernel compiled for several instruction sets; recurrent_forward() picks one.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::recurrent_attention {

/// Vectors of outputs that a pass sums up in registers: tokens times columns. Eight hide the
/// latency of an addition and, with as many vectors of v, leave registers for the state.
inline constexpr int kSumsPerPass = 8;

/// Passes that a visit to a block of columns makes at most.
inline constexpr int kMaxPasses = 4;

/// Heads that advance together at most.
inline constexpr int kMaxHeads = 8;

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
struct Scratch {
  std::int64_t state = 0;         // [heads][K, tile] in blocks of columns, each contiguous
  std::int64_t coefficients = 0;  // [passes], see cpu/simd/vector/pass_keys.inl.hpp
  std::int64_t q_rows = 0;        // [tokens, K padded], as the next two
  std::int64_t k_rows = 0;
  std::int64_t key_decays = 0;
  std::int64_t key_carries = 0;  // [heads, K padded]
  std::int64_t v_rows = 0;       // [passes, tokens, tile], as the next two
  std::int64_t o_rows = 0;
  std::int64_t value_decays = 0;
  std::int64_t value_totals = 0;   // [passes, tile]
  std::int64_t value_carries = 0;  // [heads, tile]
  std::int64_t staged = 0;         // [heads][K, tile], with states of 16 bits
  std::int64_t size = 0;
};

/// A Config as far as it reaches the kernel. Computed once outside, so that the
/// translation units per instruction set need no functions in common with the rest of the program.
struct Tiling {
  int tokens_per_pass = 1;
  std::int64_t heads = 1;   // of a task
  int block_vectors = 1;    // columns that one pass holds in registers at most, in vectors
  std::int64_t tile_v = 0;  // whole vectors
  std::int64_t tiles = 0;   // over V
  int passes = 1;           // of a visit to a block of columns
  bool prefetch = false;
  std::int64_t prefetch_state = 0;  // in floats
  bool stream = false;              // write the final state past the caches
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, group of heads, tile of V), tile fastest.
  /// `scratch` is aligned to 64 bytes and used by no other
  /// thread; it need not be initialised.
  void (*run)(const Tiling& tiling, const ForwardParams& params, std::int64_t first,
              std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::recurrent_attention
