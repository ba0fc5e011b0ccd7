// One launch of the decode kernel: tensors, sizes and how they are cut, no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::decode {

/// Vectors of columns that a pass holds in registers at most.
inline constexpr int kDecodeBlockVectors = 8;

/// For each row of the state: the decayed q, k and the decay.
inline constexpr int kDecodeCoefficients = 3;

/// Tokens that one pass over a state takes at most.
inline constexpr std::int64_t kMaxPassTokens = 4;

/// Passes of a step at most: one for each of 16 tokens whose states are kept, or 4 + 4 + 4 + 2 + 1
/// committed tokens and as many new ones.
inline constexpr int kMaxPasses = 16;

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
/// `tokens` are all of a row's, committed ones included; a pass has up to kMaxPassTokens.
struct Scratch {
  std::int64_t coefficients = 0;  // [tokens, kDecodeCoefficients, K padded] at most
  std::int64_t q_rows = 0;        // [pass, K padded], as the next two
  std::int64_t k_rows = 0;
  std::int64_t key_decays = 0;
  std::int64_t key_carry = 0;  // [K padded]
  std::int64_t v_rows = 0;     // [tokens, tile], as the next two
  std::int64_t value_decays = 0;
  std::int64_t value_totals = 0;
  std::int64_t value_carry = 0;  // [tile]
  std::int64_t o_rows = 0;       // [new tokens + 1, tile]
  std::int64_t state = 0;        // [K, block], for columns that cannot be accessed where they lie
  std::int64_t size = 0;
};

/// The tokens of one call, or those of the one before it. Their strides over tokens are 0 where
/// there is one a row.
struct TokenTensors {
  TokenTensor<const void*> k, v;       // [B, T, Hkv, K], [B, T, Hkv, V]
  TokenTensor<const void*> g, gk, gv;  // [B, T, H], [B, T, H, K], [B, T, H, V]: natural log decays
};

/// What a row does.
struct RowSlots {
  std::int64_t start = 0;      // the slot that it starts from, < S; negative for padding
  std::int64_t committed = 0;  // tokens that its state takes first, and is stored after
};

struct Params {
  std::int64_t rows = 0;       // B
  std::int64_t tokens = 1;     // T
  std::int64_t heads = 0;      // H, a multiple of kv_heads
  std::int64_t kv_heads = 0;   // Hkv; head h reads key and value head h / (H / Hkv)
  std::int64_t key_dim = 0;    // K >= 1
  std::int64_t value_dim = 0;  // V >= 1

  TokenTensor<const void*> q;  // [B, T, H, K]
  TokenTensor<void*> o;        // [B, T, H, V]
  TokenTensors fresh;
  TokenTensors committed;
  const float* g_gamma = nullptr;  // [H]
  float scale = 1.0F;

  StateTensor<void*> state;  // [S, H, K, V]
  StorageType state_type = StorageType::kF32;
  bool stochastic = false;  // rounding, of a pool in 16 bits
  std::uint64_t seed = 0;

  const RowSlots* slots = nullptr;     // [B]; null: row b has slot b, and nothing is committed
  const std::int64_t* kept = nullptr;  // [B, T]: slots of the states after each token
  bool stores_last = true;             // the state after the last token goes where it came from

  std::int64_t tile_v = 0;            // columns of a task, whole vectors
  std::int64_t tiles = 0;             // over V
  std::int64_t prefetch_columns = 0;  // how far ahead of a pass its state is fetched, in floats
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (row, head, tile of V), tile fastest. `scratch` is aligned to 64
  /// bytes and used by no other thread; it need not be initialised.
  using Run = void (*)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
  Run run_one_token;  // a row, rounded to nearest
  Run run;            // everything
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::decode
