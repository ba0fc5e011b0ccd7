#include "cuda/chunks/segment_starts.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/ptx.cuh"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace segment_starts_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;

/// Elements of a word: those of a lane in one product, of two key channels and two of a warp's 16
/// value channels.
constexpr int kOfWord = 4;

/// A thread has one element, or a word of them.
template <int kElements>
struct Elements {
  float of[kElements];

  __device__ __forceinline__ static Elements load(const float* from) {
    if constexpr (kElements == kOfWord) {
      const float4 word = *reinterpret_cast<const float4*>(from);
      return {word.x, word.y, word.z, word.w};
    } else {
      return {*from};
    }
  }
  __device__ __forceinline__ void store(float* to) const {
    if constexpr (kElements == kOfWord) {
      *reinterpret_cast<float4*>(to) = {of[0], of[1], of[2], of[3]};
    } else {
      *to = of[0];
    }
  }
};

/// What segments' decays make of a thread's elements.
template <int kElements>
class ElementDecays {
 public:
  /// `element`: the first of them.
  __device__ ElementDecays(const SegmentSums& s, int element) : s_(s) {
    const int word = element / kOfWord;
    const int lane = word % kWarpSize;
    const int products = s.keys / 8;
    key_ = word / kWarpSize % products * 8 + lane % 4 * 2 + element % 2;
    value_ = word / kWarpSize / products * 16 + lane / 4 + element % kOfWord / 2 * 8;
  }

  __device__ __forceinline__ Elements<kElements> at(std::int64_t place) const {
    Elements<kElements> decays;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      float& decay = decays.of[e];
      decay = s_.decays == nullptr ? 1.0F : s_.decays[place];
      if (s_.key_decays != nullptr) decay = s_.key_decays[place * s_.keys + key_ + e % 2];
      if (s_.value_decays == nullptr) continue;
      decay *= s_.value_decays[place * s_.value_row + value_ + e / 2 * 8];
    }
    return decays;
  }

 private:
  const SegmentSums& s_;
  int key_;
  int value_;
};

/// Blocks (owner; some elements).
template <int kElements>
__global__ __launch_bounds__(kThreads) void segment_starts(const __grid_constant__ SegmentSums s) {
  constexpr int kAtOnce = 32 / kElements;  // segments whose loads are under way
  take_over_from_previous_launch();
  const int elements = s.keys * s.values;
  const auto blocks = static_cast<unsigned>(elements / (kThreads * kElements));
  const std::int64_t first = std::int64_t{blockIdx.x / blocks} * s.places;
  const int own = static_cast<int>(blockIdx.x % blocks * kThreads + threadIdx.x) * kElements;
  const ElementDecays<kElements> decays(s, own);
  float* const states = reinterpret_cast<float*>(s.states) + first * elements + own;

  auto x = Elements<kElements>::load(states);
  for (int i = 1; i < s.count; i += kAtOnce) {
    Elements<kElements> added[kAtOnce];
    Elements<kElements> decay[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int segment = min(i + n, s.count - 1);
      added[n] = Elements<kElements>::load(states + std::int64_t{segment} * elements);
      decay[n] = decays.at(first + segment);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (i + n >= s.count) break;
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        x.of[e] = fmaf(x.of[e], decay[n].of[e], added[n].of[e]);
      }
      x.store(states + std::int64_t{i + n} * elements);
    }
  }
}

}  // namespace segment_starts_kernels

void launch_segment_starts(const SegmentSums& sums, cudaStream_t stream) {
  constexpr std::int64_t kFew = std::int64_t{1} << 17;  // a thread each waits least
  const std::int64_t elements = sums.owners * sums.keys * sums.values;
  with_value<1, kOfWord>(elements <= kFew ? 1 : kOfWord, [&]<int kElements>() {
    launch<segment_starts<kElements>>(
        {.grid = dim3(static_cast<unsigned>(elements / (kThreads * kElements))),
         .block = dim3(kThreads),
         .overlaps_previous = true},
        stream, sums);
  });
}

}  // namespace attune::cuda
