// The decode kernels as host code sees them: their parameters, and how they are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"
#include "cuda/decode/decode_config.hpp"

namespace attune::cuda::decode {

/// Which state a row has: slot b, or the b-th value of an array in device memory.
struct SlotsView {
  const void* data = nullptr;
  std::int64_t stride = 1;
  bool is_i64 = false;
};

/// Views of tokens have a time of one token.
struct DecodeParams {
  ConstTokenView q, k, v;
  GateView g, gk, gv;
  ConstantDecayView gamma;
  SlotsView slots;
  StateView state;
  TokenView o;
  std::int64_t rows = 0;   // B
  std::int64_t pool = 0;   // S
  std::int64_t heads = 0;  // H
  std::int64_t heads_per_kv = 1;
  std::int64_t keys = 0;    // K
  std::int64_t values = 0;  // V
  float scale = 1;
};

/// Queues the kernel for states whose rows are contiguous and start at multiples of 16 bytes.
template <class T>
void launch_decode_row_tiles(const DecodeConfig& config, const DecodeParams& params,
                             cudaStream_t stream);

/// Queues the kernel for states of any strides.
template <class T>
void launch_decode_any_strides(const DecodeConfig& config, const DecodeParams& params,
                               cudaStream_t stream);

}  // namespace attune::cuda::decode
