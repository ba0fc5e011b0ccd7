// One launch of the decode kernel: tensors, sizes and how they are cut, no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::decode {

/// Vectors of columns that a pass holds in registers at most.
inline constexpr int kDecodeBlockVectors = 8;

/// For each row of the state: the decayed q, k and the decay.
inline constexpr int kDecodeCoefficients = 3;

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
struct Scratch {
  std::int64_t coefficients = 0;  // see decode.inl.hpp
  std::int64_t q_row = 0;         // [K padded], as the next two
  std::int64_t k_row = 0;
  std::int64_t gk_row = 0;
  std::int64_t v_row = 0;  // [tile], as the next two
  std::int64_t o_row = 0;
  std::int64_t gv_row = 0;
  std::int64_t state = 0;  // [K, block], for columns that cannot be accessed where they lie
  std::int64_t size = 0;
};

struct Params {
  std::int64_t rows = 0;       // B
  std::int64_t heads = 0;      // H, a multiple of kv_heads
  std::int64_t kv_heads = 0;   // Hkv; head h reads key and value head h / (H / Hkv)
  std::int64_t key_dim = 0;    // K >= 1
  std::int64_t value_dim = 0;  // V >= 1

  // Row b is the batch; token strides are 0.
  TokenTensor<const void*> q, k, v;     // [B, H, K], [B, Hkv, K], [B, Hkv, V]
  TokenTensor<void*> o;                 // [B, H, V]
  TokenTensor<const void*> g, gk, gv;   // [B, H], [B, H, K], [B, H, V]: natural log decays
  const float* g_gamma = nullptr;       // [H]
  StateTensor<float*> state;            // [S, H, K, V]
  const std::int64_t* slots = nullptr;  // [B], < S; negative for padding. Null: row b has slot b
  float scale = 1.0F;

  std::int64_t tile_v = 0;            // columns of a task, whole vectors
  std::int64_t tiles = 0;             // over V
  std::int64_t prefetch_columns = 0;  // how far ahead of a pass its state is fetched, in floats
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (row, head, tile of V), tile fastest.
  /// `scratch` is aligned to 64 bytes and used by no other
  /// thread; it need not be initialised.
  void (*run)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::decode
