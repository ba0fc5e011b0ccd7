#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda {
inline namespace gamma_gradient_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;

/// Terms [N, H, count], which a thread adds up, or a warp where they are many.
template <int kThreadsOfOne>
struct TermsOfWalks {
  static constexpr int kThreadsOfSum = kThreadsOfOne;
  std::int64_t count;

  __device__ float sum(const GammaGradient& p, std::int64_t sequence, std::int64_t head) const {
    const std::int64_t sequences = p.shared() ? p.sequence_count : 1;
    float sum = 0.0F;
    for (std::int64_t i = threadIdx.x % kThreadsOfSum; i < sequences * count; i += kThreadsOfSum) {
      const std::int64_t n = quotient(i, count);
      sum += p.terms[((sequence + n) * p.heads + head) * count + i - n * count];
    }
    return kThreadsOfSum == 1 ? sum : warp_sum(sum);
  }
};

/// Terms [H, slots], which a warp adds up.
struct TermsOfChunks {
  static constexpr int kThreadsOfSum = kWarpSize;
  std::int64_t slots;

  __device__ float sum(const GammaGradient& p, std::int64_t sequence, std::int64_t head) const {
    std::int64_t first = 0;
    std::int64_t end = slots;
    if (!p.shared()) {
      const SequenceSpan span = span_of(p.sequences, sequence);
      first = first_chunk_slot(p.sequences, sequence, span);
      end = first + chunks_of(span.length);
    }
    float sum = 0.0F;
    for (std::int64_t slot = first + threadIdx.x % kWarpSize; slot < end; slot += kWarpSize) {
      sum += p.terms[head * slots + slot];
    }
    return warp_sum(sum);
  }
};

/// A sum for each head and, unless sequences share theirs, sequence.
template <class Terms>
__global__ __launch_bounds__(kThreads) void sum_terms(const __grid_constant__ GammaGradient p,
                                                      Terms terms) {
  take_over_from_previous_launch();
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t output = thread / Terms::kThreadsOfSum;
  const std::int64_t head = output % p.heads;
  const std::int64_t sequence = output / p.heads;
  if (sequence >= (p.shared() ? 1 : p.sequence_count)) return;
  const float sum = terms.sum(p, sequence, head);
  if (thread % Terms::kThreadsOfSum != 0) return;
  p.out.data[sequence * p.out.sequence + head * p.out.head] = p.sign * sum;
}

template <class Terms>
void launch_sum(const GammaGradient& p, const Terms& terms, cudaStream_t stream) {
  const std::int64_t outputs = (p.shared() ? 1 : p.sequence_count) * p.heads;
  const std::int64_t blocks = (outputs * Terms::kThreadsOfSum + kThreads - 1) / kThreads;
  launch<sum_terms<Terms>>({.grid = dim3(static_cast<unsigned>(blocks)),
                            .block = dim3(kThreads),
                            .overlaps_previous = true},
                           stream, p, terms);
}

}  // namespace gamma_gradient_kernels

void launch_sum_of_walks(const GammaGradient& p, std::int64_t count, cudaStream_t stream) {
  constexpr std::int64_t kFew = 4;
  const std::int64_t terms = (p.shared() ? p.sequence_count : 1) * count;
  if (terms <= kFew) return launch_sum(p, TermsOfWalks<1>{count}, stream);
  launch_sum(p, TermsOfWalks<kWarpSize>{count}, stream);
}

void launch_sum_of_chunks(const GammaGradient& p, std::int64_t slots, cudaStream_t stream) {
  launch_sum(p, TermsOfChunks{slots}, stream);
}

}  // namespace attune::cuda
