// One launch of the chunked backward kernel on tile registers: tensors, sizes and how they are cut,
// no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::chunk_tiles::backward {

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line. C is
/// the chunk, W the larger of K and V; all three are in whole 32s. A float of an operand is a pair
/// of bf16.
struct Scratch {
  /// A state as cpu/simd/chunk_tiles/state.inl.hpp has it.
  struct State {
    std::int64_t floats = 0;   // K V of them, in tiles of fp32
    std::int64_t carries = 0;  // a vector, see cpu/simd/vector/decays.inl.hpp
  };
  /// Copies of a chunk's rows, [C, K] or [C, V] bf16; offsets from where that chunk's begin. With a
  /// gk, q, k and do are as operands of products.
  struct Copies {
    std::int64_t q = 0, k = 0, v = 0, d_o = 0;
    std::int64_t decays = 0;  // with a gk, as the next three: [C, K]
    std::int64_t first = 0;   // [K], as the next
    std::int64_t total = 0;
    std::int64_t kept_rows = 0;  // one
    std::int64_t size = 0;
  };
  State states[2];                    // of dq, of dk, of dv
  std::int64_t state_pairs = 0;       // [2][W / 32] tiles: 32 columns of a state, rounded
  std::int64_t transposed_pairs = 0;  // [V / 16][K / 32] tiles: D, rounded
  std::int64_t queries = 0;           // [C / 16][W / 32] tiles
  std::int64_t keys = 0;              // [C / 16][W / 32] tiles: tokens as columns
  std::int64_t writes = 0;            // [W / 16][C / 32] tiles: channels as rows
  std::int64_t values = 0;            // [4][C / 32] tiles: of two times 32 columns
  std::int64_t sums = 0;              // [C / 16][C / 16] tiles of fp32: scores
  std::int64_t key_sums = 0;          // the same of dv
  std::int64_t scores = 0;            // [C / 16][C / 32] tiles: the same as an operand
  std::int64_t outputs = 0;           // eight tiles of fp32
  std::int64_t decays = 0;            // [W]
  std::int64_t partial = 0;           // [C, 16]: of dot products of tokens
  std::int64_t zeros = 0;             // a row
  std::int64_t dk_sums = 0;           // [T, K] over the heads of a group, when it has several
  std::int64_t dv_sums = 0;           // [T, V]
  std::int64_t dots = 0;              // [T] q dq, when there is a gate, and no gk
  std::int64_t checkpoints = 0;       // [segments - 1] states of dq, when there is a gate
  // With a gk:
  std::int64_t gate_rows = 0;  // [C, K]
  std::int64_t q_rows = 0;     // [C, K] bf16, as the next
  std::int64_t k_rows = 0;
  std::int64_t centers = 0;     // [K]
  std::int64_t exact_span = 0;  // three of [16, K]
  std::int64_t terms = 0;       // [T, K] q dq
  std::int64_t gates = 0;       // [K], as the next two
  std::int64_t state_decay = 0;
  std::int64_t gradient_decay = 0;
  Copies copies_of_chunk;
  std::int64_t copies = 0;  // [kept chunks + 1] of copies_of_chunk
  std::int64_t size = 0;
};

struct Params : BackwardParams {
  std::int64_t chunk = 64;          // a multiple of 32
  std::int64_t segment_tokens = 1;  // tokens between two checkpoints, a multiple of chunk
  std::int64_t kept_chunks = 0;     // of the end of a sequence, copied once for both sweeps
  bool stream = false;              // gradients are written past the caches
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, kv head), kv head fastest.
  /// `scratch` is aligned to 64 bytes and used by no other
  /// thread; it need not be initialised.
  void (*run)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::chunk_tiles::backward
