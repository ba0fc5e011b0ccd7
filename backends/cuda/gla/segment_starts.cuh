// What each of many segments starts from, made of what each adds to S and D, element by element:
// then a walk need not pass all segments before its own.
#pragma once

#include "cuda/gla/state_block.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla {

inline constexpr int kStartThreads = 128;
inline constexpr int kStartsAtOnce = 8;  // loads under way

/// What a sequence's segments add to a head's state: numbers of the first one and the next, how many.
struct SumsOfSegments {
  std::int64_t owner;  // of all sequences and heads
  std::int64_t first;
  std::int64_t step = 1;
  int count;

  /// Of an owner, or of a number of [sums of parts, heads]: none but of a first segment.
  __device__ SumsOfSegments(const GlaParams& p, std::int64_t index)
      : owner(index), first(index * p.segments), count(p.segments) {
    if (!p.by_parts()) return;
    const std::int64_t number = small_quotient(index, p.heads);
    const PartPlace place = place_at(p.parts.sum_places, static_cast<unsigned>(number));
    owner = place.sequence * p.heads + index - number * p.heads;
    first = index;
    step = p.heads;
    count = place.segment == 0 ? place.segments : 0;
  }
};

/// Four elements along a row of the own side's channels by the others, of a sequence and head.
template <Gated kGated>
class StartsOfElements {
 public:
  __device__ StartsOfElements(const GlaParams& p, bool with_time, const SumsOfSegments& sums,
                              int word)
      : p_(p),
        count_(sums.count),
        step_(with_time ? sums.step : -sums.step),
        row_(word / (other_channels(p) / 4)),
        column_(word % (other_channels(p) / 4) * 4),
        first_(sums.first + (with_time ? 0 : p.sums() + sums.step * (sums.count - 1))) {}

  /// The sequence's initial state, or the gradient of its final one.
  __device__ void begin(const ConstStateView& view, std::int64_t owner) {
    if (view.data == nullptr || row_ >= p_.own) return;
    const float* const row =
        view.data + owner / p_.heads * view.sequence + owner % p_.heads * view.head + row_ * view.k;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column_ + i < p_.other) x_[i] = row[(column_ + i) * view.v];
    }
  }

  /// Puts starts in the place of the sums.
  __device__ void pass_all() {
    for (int i = 0; i < count_; i += kStartsAtOnce) {
      float4 added[kStartsAtOnce];
      float4 decay[kStartsAtOnce];
#pragma unroll
      for (int n = 0; n < kStartsAtOnce; ++n) {
        if (i + n >= count_ - 1) continue;  // nothing starts from what the last one adds
        added[n] = *place(i + n);
        decay[n] = decays(i + n);
      }
#pragma unroll
      for (int n = 0; n < kStartsAtOnce; ++n) {
        if (i + n >= count_) continue;
        *place(i + n) = {x_[0], x_[1], x_[2], x_[3]};
        x_[0] = fmaf(decay[n].x, x_[0], added[n].x);
        x_[1] = fmaf(decay[n].y, x_[1], added[n].y);
        x_[2] = fmaf(decay[n].z, x_[2], added[n].z);
        x_[3] = fmaf(decay[n].w, x_[3], added[n].w);
      }
    }
  }

 private:
  /// Segment i of those in the order of the walk.
  __device__ std::int64_t segment(int i) const { return first_ + step_ * i; }
  __device__ float4* place(int i) const {
    return reinterpret_cast<float4*>(p_.segment_sums.data + segment(i) * p_.segment_sums.sequence +
                                     row_ * p_.segment_sums.k + column_);
  }
  __device__ float4 decays(int i) const {
    const float own = p_.segment_decays[segment(i) * own_channels(p_) + row_];
    if constexpr (kGated == Gated::kBoth) {
      const float4 other = *reinterpret_cast<const float4*>(
          p_.other_segment_decays + segment(i) * other_channels(p_) + column_);
      return {own * other.x, own * other.y, own * other.z, own * other.w};
    }
    return {own, own, own, own};
  }

  const GlaParams& p_;
  int count_;
  std::int64_t step_;
  int row_;
  int column_;
  std::int64_t first_;
  float x_[4] = {};
};

/// Blocks (sequence and head, or sum of parts and head; some elements of the state; direction).
template <Gated kGated>
__global__ __launch_bounds__(kStartThreads) void segment_starts(
    const __grid_constant__ GlaParams p) {
  take_over_from_previous_launch();
  const bool with_time = blockIdx.z == 0;
  const auto word = static_cast<int>(blockIdx.y * kStartThreads + threadIdx.x);
  const SumsOfSegments sums(p, blockIdx.x);
  if (sums.count == 0) return;
  StartsOfElements<kGated> starts(p, with_time, sums, word);
  starts.begin(with_time ? p.initial_state : p.dfinal_state, sums.owner);
  starts.pass_all();
}

/// Of both directions. Tiles' channels make whole blocks.
template <Gated kGated>
void launch_segment_starts(const GlaParams& p, cudaStream_t stream) {
  constexpr unsigned kDirections = 2;
  const int words = own_channels(p) * other_channels(p) / 4;
  launch<segment_starts<kGated>>(
      {.grid = dim3(static_cast<unsigned>(p.by_parts() ? p.sums() : p.sequence_count * p.heads),
                    static_cast<unsigned>(words / kStartThreads), kDirections),
       .block = dim3(kStartThreads),
       .overlaps_previous = true},
      stream, p);
}

}  // namespace attune::cuda::gla
