// The gradient of keys or values that several query heads share, from what each one contributes.
//
//   out[b, t, h, c] = sum over the query heads g of h's group of partials[b, t, h group + g, c]
//
// in fp32 and in one order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

struct GroupSumParams {
  const void* partials = nullptr;  // [B, T, heads group, columns] of T, 16-byte aligned
  std::int64_t rows = 0;           // B T
  std::int64_t tokens = 0;         // T
  std::int64_t heads = 0;          // of out
  std::int64_t group = 1;          // query heads a head of out
  std::int64_t columns = 0;        // a multiple of 8
  TokenView out;                   // [B, T, heads, columns] of T, rows aligned to 16 bytes
};

inline constexpr int kMostGroupSums = 3;  // of a launch

/// Several of them, kMostGroupSums at most. T is __nv_bfloat16 or __half.
template <class T>
void launch_group_sums(std::span<const GroupSumParams> sums, cudaStream_t stream);

}  // namespace attune::cuda
