// Tiles of a chunk's states on their way to panels of shared memory, as walks have kept them: split.
#pragma once

#include "cuda/chunk_mma/backward/chunk_block.cuh"

namespace attune::cuda::chunk_mma::backward {

/// A panel for a thread of a block of so many: eight channels of every kRows-th row. What it copies it
/// may read, and copy something else over, without a barrier.
template <int kThreads>
struct OwnOctets {
  static constexpr int kChannels = 8;
  static constexpr int kLanes = kPanelChannels / kChannels;
  static constexpr int kRows = kThreads / kLanes;  // at a time
  static constexpr int kCount = kTokens / kRows;
  static_assert(kRows % 8 == 0);  // rows that the swizzle places alike

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kLanes * kChannels; }
  __device__ static int row(int i) { return i * kRows + static_cast<int>(threadIdx.x) / kLanes; }
  /// Of the high parts; low parts are PanelShape::kPanelBytes behind.
  __device__ static std::uint32_t place(int i) {
    return swizzled(row(0), channel() * 2) + i * kRows * kPanelRowBytes;
  }
};

/// Eight channels of a row, split.
struct SplitOctet {
  SplitPair pairs[4];

  __device__ explicit SplitOctet(const std::byte* from) {
    const uint4 high = *reinterpret_cast<const uint4*>(from);
    const uint4 low = *reinterpret_cast<const uint4*>(from + PanelShape::kPanelBytes);
    pairs[0] = {high.x, low.x};
    pairs[1] = {high.y, low.y};
    pairs[2] = {high.z, low.z};
    pairs[3] = {high.w, low.w};
  }
  __device__ void store(std::byte* to) const {
    *reinterpret_cast<uint4*>(to) = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(to + PanelShape::kPanelBytes) = {pairs[0].low, pairs[1].low,
                                                               pairs[2].low, pairs[3].low};
  }
};

/// Where one of a chunk's states is, found once for a block and kept in shared memory.
struct StateSource {
  const SplitPart* split = nullptr;  // rows as StateSide has them
  const float* start = nullptr;      // of its segment; null where nothing of that is missing

  __device__ static StateSource of(const BackwardParams& p, const Chunk& chunk,
                                   const StateSide& side, bool adds) {
    const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
    const std::int64_t at = chunk.number * p.heads + chunk.head;
    const std::int64_t segment = chunk.segment * p.heads + chunk.head;
    return {reinterpret_cast<const SplitPart*>(side.states + at * size),
            adds ? side.segment_states + segment * size : nullptr};
  }
};

/// A tile of it; kAddsStarts: states may lack what their segments started from.
template <int kThreads, bool kValueGates, bool kAddsStarts>
class StateTile {
 public:
  using Own = OwnOctets<kThreads>;

  __device__ StateTile(const BackwardParams& p, const Chunk& chunk, const StateSource& source,
                       const StateSide& side, int key_panel, int value_panel)
      : p_(p),
        chunk_(chunk),
        source_(source),
        side_(side),
        first_key_(key_panel * kPanelChannels),
        first_value_(value_panel * kPanelChannels + Own::channel()) {}

  /// Begins to copy it to a panel of shared memory; zeros where it has no rows or columns.
  __device__ __forceinline__ void copy(std::byte* panel) const {
    const auto columns = static_cast<int>(state_columns(p_.values.channels));
    const int exist = first_value_ < columns ? p_.keys.channels - first_key_ : 0;
    const int first = 2 * (first_key_ + Own::row(0)) * columns + first_value_;
    const std::uint32_t to = shared_address(panel);
#pragma unroll
    for (int i = 0; i < Own::kCount; ++i) {
      const bool exists = Own::row(i) < exist;
      const SplitPart* const high =
          source_.split + (exists ? first + 2 * i * Own::kRows * columns : 0);
      copy_async_16(to + Own::place(i), high, exists);
      copy_async_16(to + PanelShape::kPanelBytes + Own::place(i), high + columns, exists);
    }
  }
  /// Begins to load what is missing of it, where it is what tokens of the segment made of zero.
  __device__ __forceinline__ void fetch_start() {
    if (!kAddsStarts || source_.start == nullptr) return;
    const auto columns = static_cast<int>(state_columns(p_.values.channels));
    const int column = min(first_value_, columns - Own::kChannels);
#pragma unroll
    for (int i = 0; i < Own::kCount; ++i) {
      const int key = min(first_key_ + Own::row(i), p_.keys.channels - 1);
      const auto* const quads =
          reinterpret_cast<const float4*>(source_.start + key * columns + column);
      start_[i][0] = __ldg(quads);
      start_[i][1] = __ldg(quads + 1);
    }
  }
  /// Adds that to what has been copied by the thread.
  __device__ __forceinline__ void add_start(std::byte* panel) const {
    if (!kAddsStarts || source_.start == nullptr) return;
    float of_values[Own::kChannels];
    load_value_decays(of_values);
    const float* const of_keys = side_.keys.of_chunks + at() * side_.keys.width;
#pragma unroll
    for (int i = 0; i < Own::kCount; ++i) {
      const int key = first_key_ + Own::row(i);
      if (key >= p_.keys.channels || first_value_ >= p_.values.channels) continue;
      const float decay = of_keys[min(std::int64_t{key}, side_.keys.width - 1)];
      SplitOctet octet(panel + Own::place(i));
      const float start[] = {start_[i][0].x, start_[i][0].y, start_[i][0].z, start_[i][0].w,
                             start_[i][1].x, start_[i][1].y, start_[i][1].z, start_[i][1].w};
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float2 x = joined(octet.pairs[pair]);
        octet.pairs[pair] = split(fmaf(start[2 * pair], decay * of_values[2 * pair], x.x),
                                  fmaf(start[2 * pair + 1], decay * of_values[2 * pair + 1], x.y));
      }
      octet.store(panel + Own::place(i));
    }
  }

 private:
  __device__ std::int64_t at() const { return chunk_.number * p_.heads + chunk_.head; }
  __device__ __forceinline__ void load_value_decays(float (&decays)[Own::kChannels]) const {
#pragma unroll
    for (int e = 0; e < Own::kChannels; ++e) {
      decays[e] = 1.0F;
      if constexpr (kValueGates) {
        const int channel = min(first_value_ + e, p_.values.channels - 1);
        decays[e] = side_.values.of_chunks[at() * side_.values.width + channel];
      }
    }
  }

  const BackwardParams& p_;
  const Chunk& chunk_;
  const StateSource& source_;
  const StateSide& side_;
  const int first_key_;
  const int first_value_;  // of the thread
  float4 start_[Own::kCount][2];
};

}  // namespace attune::cuda::chunk_mma::backward
