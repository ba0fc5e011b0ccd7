// One call of an op as kernels see it: raw pointers, strides and sizes, no behaviour.
//
// Everything that a unit compiled for one instruction set shares with the rest of the program: it
// must not bring in inline functions that others use too, as the linker keeps one copy of each,
// possibly that one. So there is a StorageType beside core's DType.
//
// Strides are in elements and may be anything, zero and negative included; the last dimension of a
// token tensor is contiguous. Pointers are borrowed. A null pointer means that the tensor is not
// given (or is empty).
#pragma once

#include <cstdint>

namespace attune::cpu::simd {

/// The instruction sets that kernels are compiled for, each after those that it contains.
enum class Isa : std::uint8_t {
  kBaseline,    // what the compiler targets by default: SSE2 on x86-64, NEON on aarch64
  kAvx2,        // AVX2, FMA and F16C
  kAvx512,      // AVX-512 F, BW, DQ and VL, with FMA and F16C
  kAvx512Bf16,  // the same and AVX-512 BF16: products of bf16 pairs
  kAmxBf16,     // the same and tile registers: products of bf16 in them
};

/// Vector length of `isa` in floats.
constexpr int lanes(Isa isa) { return isa >= Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4; }

enum class StorageType : std::uint8_t { kF32, kF16, kBF16 };

[[gnu::always_inline]] constexpr std::int64_t size_of(StorageType type) {
  return type == StorageType::kF32 ? 4 : 2;
}

/// [B, T, heads, width], or [B, T, heads] when it has one value per head.
template <class Pointer>
struct TokenTensor {
  Pointer data = nullptr;
  StorageType type = StorageType::kF32;
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// [N, H, K, V] in fp32.
template <class Pointer>
struct StateTensor {
  Pointer data = nullptr;
  std::int64_t sequence_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

/// [N, H, K, V], or a pool [S, H, K, V] of which sequences have slots. Of any storage type, which
/// is what tells it from a StateTensor.
template <class Pointer>
struct StoredStates {
  Pointer data = nullptr;
  StorageType type = StorageType::kF32;
  std::int64_t slot_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

/// Slots in a pool, [N] or [N, M]; negative ones are none. Null: sequence n has slot n.
struct SlotIndices {
  const void* data = nullptr;
  bool is_wide = false;  // int64, or int32
  std::int64_t sequence_stride = 0;
  std::int64_t snapshot_stride = 0;
};

/// Tokens that one pass over a state may handle: the axis tokens_per_pass of the recurrent kernels,
/// and their instances.
inline constexpr int kTokensPerPass[] = {1, 2, 4};

/// A forward pass.
struct ForwardParams {
  std::int64_t batch = 0;      // B; 1 when cu_seqlens is given
  std::int64_t tokens = 0;     // T
  std::int64_t heads = 0;      // H, a multiple of kv_heads
  std::int64_t kv_heads = 0;   // Hkv; head h reads key and value head h / (H / Hkv)
  std::int64_t key_dim = 0;    // K >= 1
  std::int64_t value_dim = 0;  // V >= 1

  TokenTensor<const void*> q;  // [B, T, H, K]
  TokenTensor<const void*> k;  // [B, T, Hkv, K], stored as q
  TokenTensor<const void*> v;  // [B, T, Hkv, V], stored as q
  TokenTensor<void*> o;        // [B, T, H, V], stored as q

  TokenTensor<const void*> g;   // [B, T, H], natural log decay per head
  TokenTensor<const void*> gk;  // [B, T, H, K], per key channel
  TokenTensor<const void*> gv;  // [B, T, H, V], per value channel
  const float* g_gamma = nullptr;
  std::int64_t g_gamma_sequence_stride = 0;  // 0 when g_gamma is [H]
  std::int64_t g_gamma_head_stride = 1;

  StoredStates<const void*> initial_state;  // zeros when not given
  StoredStates<void*> final_state;          // stored alike; may be exactly the initial state
  SlotIndices initial_slots;
  SlotIndices final_slots;
  // The state after every so many tokens goes to these slots of final_state; 0 for none.
  std::int64_t snapshot_every = 0;
  std::int64_t snapshots = 0;  // M
  SlotIndices snapshot_slots;
  bool rounds_at_random = false;  // states of 16 bits
  std::uint64_t rounding_seed = 0;

  // [sequences + 1] in host memory: each within the tokens, and none before the one in front of it.
  const std::int64_t* cu_seqlens = nullptr;
  std::int64_t sequences = 0;  // N; B without cu_seqlens

  float scale = 1.0F;
  bool reverse = false;
};

/// A backward pass.
struct BackwardParams {
  ForwardParams forward;                   // but for o and the final state
  TokenTensor<const void*> d_o;            // [B, T, H, V]; zeros when not given
  TokenTensor<void*> dq, dk, dv;           // as q, k, v
  TokenTensor<void*> dg, dgk, dgv;         // fp32; given exactly when the gate is
  StateTensor<const float*> dfinal_state;  // zeros when not given
  StateTensor<float*> dinitial_state;
  double* dgamma = nullptr;  // [N, H] dense: the gradient of each head's log decay
};

}  // namespace attune::cpu::simd
