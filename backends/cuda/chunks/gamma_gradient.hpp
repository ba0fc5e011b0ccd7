// The gradient of a decay that is constant in time: a head's gradients of g, added up over tokens
// by those who made them, are added up here, always in the same order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/views.hpp"

namespace attune::cuda {

struct GammaGradient {
  const float* terms = nullptr;  // sums of dg over some tokens each
  StateView out;                 // [N, H], strides `sequence` and `head`; of gamma.values
  float sign = 1;                // -1 for slopes
  std::int64_t heads = 0;
  SequencesView sequences;
  std::int64_t sequence_count = 0;

  /// Whether sequences have one gradient together.
  constexpr bool shared() const { return out.sequence == 0; }
};

/// Of terms [N, H, count].
void launch_sum_of_walks(const GammaGradient& params, std::int64_t count, cudaStream_t stream);

/// Of terms [part, H, of_part], of packed sequences' parts; zeros where there is none. By as many threads
/// as `count` terms of a sequence are summed up.
void launch_sum_of_parts(const GammaGradient& params, const SequenceParts& parts,
                         std::int64_t of_part, std::int64_t count, cudaStream_t stream);

/// Of terms [H, slots, of_chunk], those of each chunk of 64 tokens (chunk.hpp).
void launch_sum_of_chunks(const GammaGradient& params, std::int64_t slots, int of_chunk,
                          cudaStream_t stream);

}  // namespace attune::cuda
