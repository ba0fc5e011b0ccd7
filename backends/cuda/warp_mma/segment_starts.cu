#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/warp_mma/segments.cuh"

namespace attune::cuda::warp_mma {
inline namespace segment_starts_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kWords = 32;     // of a state, side by side, that a block has
constexpr int kStretches = 8;  // of a sequence's segments, which the threads of a word share
constexpr int kThreads = kWords * kStretches;

__device__ __forceinline__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float4 decayed_sum(const float4& decay, const float4& x,
                                              const float4& added) {
  return {fmaf(x.x, decay.x, added.x), fmaf(x.y, decay.y, added.y), fmaf(x.z, decay.z, added.z),
          fmaf(x.w, decay.w, added.w)};
}

/// What a segment makes of a word of the state, or several behind each other do.
struct Step {
  float4 decay{1.0F, 1.0F, 1.0F, 1.0F};
  float4 sum{0.0F, 0.0F, 0.0F, 0.0F};

  /// Goes over `next` as well.
  __device__ __forceinline__ void append(const Step& next) {
    sum = decayed_sum(next.decay, sum, next.sum);
    decay = times(decay, next.decay);
  }
};

/// A word of the states of a head's segments.
template <int kWidth>
class WordSteps {
 public:
  __device__ WordSteps(const Params& p, std::int64_t first, int word)
      : p_(p), first_(first), word_(word) {
    Lane lane;
    lane.number = word % kWarpSize;
    lane.row = lane.number / 4;
    lane.quarter = lane.number % 4;
    key_ = State<kWidth>::key(word / kWarpSize % State<kWidth>::kOctets, 0, lane);
    value_ = State<kWidth>::value(word / kWarpSize / State<kWidth>::kOctets, 0, lane);
  }

  __device__ __forceinline__ float4& sum(int segment) const {
    return p_.sums[index(segment) * State<kWidth>::kWords + word_];
  }
  __device__ __forceinline__ Step at(int segment) const {
    return {decays(index(segment)), sum(segment)};
  }

 private:
  __device__ __forceinline__ std::int64_t index(int segment) const {
    return first_ + std::int64_t{segment} * p_.heads;
  }
  __device__ __forceinline__ float4 decays(std::int64_t index) const {
    const bool of_keys = p_.gk.view.given();
    const bool of_values = p_.gv.view.given();
    if (!of_keys && !of_values) {
      const float all = p_.key_decays[index];
      return {all, all, all, all};
    }
    float2 keys{1.0F, 1.0F};
    float2 values{1.0F, 1.0F};
    if (of_keys) {
      keys = *reinterpret_cast<const float2*>(p_.key_decays + index * kWidth + key_);
    }
    if (of_values) {
      const float* const at = p_.value_decays + index * kWidth + value_;
      values = {at[0], at[2]};
    }
    return {keys.x * values.x, keys.y * values.x, keys.x * values.y, keys.y * values.y};
  }

  const Params& p_;
  const std::int64_t first_;  // the place of the first segment's
  const int word_;
  int key_;
  int value_;
};

/// Calls visit(segment, step) for segments [begin, end), some loaded at once.
template <int kWidth, class Visit>
__device__ __forceinline__ void for_each_step(const WordSteps<kWidth>& steps, int begin, int end,
                                              Visit&& visit) {
  constexpr int kAtOnce = 8;
  for (int segment = begin; segment < end; segment += kAtOnce) {
    Step loaded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) loaded[i] = steps.at(min(segment + i, end - 1));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (segment + i < end) visit(segment + i, loaded[i]);
    }
  }
}

/// grid: sequences x heads, words of a state. Each stretch of segments is summed up, and then gone over
/// again from what those before it add up to.
template <int kWidth>
__global__ __launch_bounds__(kThreads) void segment_starts(const __grid_constant__ Params p) {
  __shared__ Step stretches[kStretches][kWords];
  const std::int64_t n = quotient(blockIdx.x, p.heads);
  const auto head = static_cast<int>(blockIdx.x - n * p.heads);
  const SequenceSpan span = span_of(p.sequences, n);
  const int count = segments_of(p, span) - 1;  // that are sums
  if (span.is_left_out || count < 2) return;
  const int own = static_cast<int>(threadIdx.x) % kWords;
  const int stretch = static_cast<int>(threadIdx.x) / kWords;
  const WordSteps<kWidth> steps(p, first_segment(p, n, span) * p.heads + head,
                                static_cast<int>(blockIdx.y) * kWords + own);
  const int length = (count + kStretches - 1) / kStretches;
  const int begin = min(stretch * length, count);
  const int end = min(begin + length, count);

  Step all;
  for_each_step(steps, begin, end, [&](int, const Step& step) { all.append(step); });
  stretches[stretch][own] = all;
  __syncthreads();  // the sums of all stretches are there
  Step before;
  for (int other = 0; other < stretch; ++other) before.append(stretches[other][own]);
  for_each_step(steps, begin, end, [&](int segment, const Step& step) {
    before.append(step);
    steps.sum(segment) = before.sum;
  });
}

}  // namespace segment_starts_kernels

void launch_segment_starts(const Params& params, cudaStream_t stream) {
  with_value_of<kWidths>(params.width(), [&]<int kWidth>() {
    const auto owners = static_cast<unsigned>(params.sequence_count * params.heads);
    launch<segment_starts<kWidth>>(
        {.grid = dim3(owners, State<kWidth>::kWords / kWords), .block = kThreads}, stream, params);
  });
}

}  // namespace attune::cuda::warp_mma
