#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace gamma_gradient_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

/// Which of a head's terms make one sum.
struct TermRange {
  std::int64_t first;
  std::int64_t count;
};

/// Terms [N, H, of a sequence].
struct TermsOfWalks {
  std::int64_t of_sequence;

  __device__ TermRange range(const GammaGradient& p, std::int64_t sequence) const {
    return {sequence * of_sequence, (p.shared() ? p.sequence_count : 1) * of_sequence};
  }
  __device__ float at(const GammaGradient& p, std::int64_t head, std::int64_t term) const {
    const std::int64_t sequence = quotient(term, of_sequence);
    return p.terms[(sequence * p.heads + head) * of_sequence + term - sequence * of_sequence];
  }
};

/// Terms [part, H, of a part].
struct TermsOfParts {
  std::int64_t tokens;  // of a part
  std::int64_t parts;
  std::int64_t of_part;

  __device__ TermRange range(const GammaGradient& p, std::int64_t sequence) const {
    if (p.shared()) return {0, parts * of_part};
    const SequenceSpan span = span_of(p.sequences, sequence);
    return {first_part(p.sequences, sequence, span, tokens) * of_part,
            (span.length / tokens + 1) * of_part};
  }
  __device__ float at(const GammaGradient& p, std::int64_t head, std::int64_t term) const {
    const std::int64_t part = quotient(term, of_part);
    return p.terms[(part * p.heads + head) * of_part + term - part * of_part];
  }
};

/// Terms [H, slots, of a chunk].
struct TermsOfChunks {
  std::int64_t slots;
  std::int64_t of_chunk;

  __device__ TermRange range(const GammaGradient& p, std::int64_t sequence) const {
    if (p.shared()) return {0, slots * of_chunk};
    const SequenceSpan span = span_of(p.sequences, sequence);
    return {first_chunk_slot(p.sequences, sequence, span) * of_chunk,
            chunks_of(span.length) * of_chunk};
  }
  __device__ float at(const GammaGradient& p, std::int64_t head, std::int64_t term) const {
    return p.terms[head * slots * of_chunk + term];
  }
};

/// Over so many threads, each sum's first one. With more than a warp they are a block.
template <int kThreadsOfSum>
__device__ __forceinline__ float sum_of_threads(float x) {
  if constexpr (kThreadsOfSum > 1) x = warp_sum(x);
  if constexpr (kThreadsOfSum > kWarpSize) {
    __shared__ float of_warps[kWarps];
    if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = x;
    __syncthreads();  // all warps' sums are there
    x = 0.0F;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) x += of_warps[i];
  }
  return x;
}

/// A sum for each head and, unless sequences share theirs, sequence.
template <int kThreadsOfSum, class Terms>
__global__ __launch_bounds__(kThreads) void sum_terms(const __grid_constant__ GammaGradient p,
                                                      Terms terms) {
  constexpr int kAtOnce = kThreadsOfSum == kThreads ? 8 : 1;  // loads under way
  take_over_from_previous_launch();
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t output = thread / kThreadsOfSum;
  const std::int64_t head = output % p.heads;
  const std::int64_t sequence = output / p.heads;
  if (sequence >= (p.shared() ? 1 : p.sequence_count)) return;
  const TermRange range = terms.range(p, sequence);
  float sum = 0.0F;
  for (std::int64_t own = thread % kThreadsOfSum; own < range.count;
       own += kAtOnce * kThreadsOfSum) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t term = own + i * kThreadsOfSum;
      some[i] = term < range.count ? terms.at(p, head, range.first + term) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += some[i];
  }
  sum = sum_of_threads<kThreadsOfSum>(sum);
  if (thread % kThreadsOfSum != 0) return;
  p.out.data[sequence * p.out.sequence + head * p.out.head] = p.sign * sum;
}

template <int kThreadsOfSum, class Terms>
void launch_sum(const GammaGradient& p, const Terms& terms, cudaStream_t stream) {
  const std::int64_t outputs = (p.shared() ? 1 : p.sequence_count) * p.heads;
  const std::int64_t blocks = (outputs * kThreadsOfSum + kThreads - 1) / kThreads;
  launch<sum_terms<kThreadsOfSum, Terms>>({.grid = dim3(static_cast<unsigned>(blocks)),
                                           .block = dim3(kThreads),
                                           .overlaps_previous = true},
                                          stream, p, terms);
}

}  // namespace gamma_gradient_kernels

namespace {

/// By as many threads as so many terms of a sequence are worth.
template <class Terms>
void launch_sum_of(const GammaGradient& p, const Terms& of, std::int64_t count,
                   cudaStream_t stream) {
  constexpr std::int64_t kMostOfThread = 4, kMostOfWarp = 64;
  const std::int64_t terms = (p.shared() ? p.sequence_count : 1) * count;
  const int threads = terms <= kMostOfThread ? 1 : terms <= kMostOfWarp ? kWarpSize : kThreads;
  with_value<1, kWarpSize, kThreads>(
      threads, [&]<int kThreadsOfSum>() { launch_sum<kThreadsOfSum>(p, of, stream); });
}

}  // namespace

void launch_sum_of_walks(const GammaGradient& p, std::int64_t count, cudaStream_t stream) {
  launch_sum_of(p, TermsOfWalks{count}, count, stream);
}

void launch_sum_of_parts(const GammaGradient& p, const SequenceParts& parts, std::int64_t of_part,
                         std::int64_t count, cudaStream_t stream) {
  launch_sum_of(p, TermsOfParts{parts.tokens, parts.count, of_part}, count, stream);
}

/// By a warp each, however many: sequences in a batch and packed ones have the same bits.
void launch_sum_of_chunks(const GammaGradient& p, std::int64_t slots, int of_chunk,
                          cudaStream_t stream) {
  launch_sum<kWarpSize>(p, TermsOfChunks{slots, of_chunk}, stream);
}

}  // namespace attune::cuda
