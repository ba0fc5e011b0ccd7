// One launch of the recurrent forward kernel: tensors and sizes, no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/tensors.hpp"

namespace attune::cpu {

struct RecurrentForwardParams {
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

  StateTensor<const float*> initial_state;  // zeros when not given
  StateTensor<float*> final_state;          // may be exactly the initial state

  const std::int64_t* cu_seqlens =
      nullptr;                 // [sequences + 1] in host memory, checked by the caller
  std::int64_t sequences = 0;  // N; B without cu_seqlens

  float scale = 1.0F;
  bool reverse = false;
};

}  // namespace attune::cpu
