// Sums of what several blocks, or several query heads, have each computed a share of.
//
//   out[b, t, h, c] = sum over planes p and query heads g of h's group of planes[p, b, t, g, c]
//
// in fp32 and in one order. Rows behind the last packed sequence become zeros.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

struct PlaneSumParams {
  const float* planes = nullptr;  // [plane_count, B, T, heads, row]
  std::int64_t plane_count = 1;
  std::int64_t batches = 0;  // B
  std::int64_t tokens = 0;   // T
  std::int64_t heads = 0;    // query heads
  std::int64_t columns = 0;
  std::int64_t row = columns;    // of a plane, with what is behind its columns
  std::int64_t group = 1;        // query heads a head of out
  TokenView out;                 // [B, T, heads / group, columns]
  SequencesView sequences = {};  // where they are packed
  std::int64_t sequence_count = 0;
};

template <class T>
void launch_plane_sums(const PlaneSumParams& params, cudaStream_t stream);

}  // namespace attune::cuda
