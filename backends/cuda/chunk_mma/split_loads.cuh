// Chunks of keys and values of f32 on their way to tiles of split_tiles.cuh, for a block that all makes
// a segment's state: split once there, not by each warp that reads them. They wait in registers, so
// that loading them is under way for a whole chunk.
#pragma once

#include "cuda/chunk_mma/split_tiles.cuh"

namespace attune::cuda::chunk_mma {

/// What one thread loads of a chunk of kChannels channels of one tensor: some channels of one token
/// in kRows.
template <class Shape, int kChannels>
class LoadedTile {
 public:
  /// Where that is, from the chunk's first token on, which are `step` apart.
  __device__ static std::int64_t place(std::int64_t step) { return own_row() * step + channel(); }

  /// Begins to load it from there; zeros for tokens from `rows` on and for channels from `channels`
  /// on. Rows have a multiple of kPerCopy channels, zeros behind `channels`.
  __device__ __forceinline__ void fetch(const float* from, std::int64_t step, int rows,
                                        int channels) {
    const int existing = channel() < channels ? rows - own_row() : 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      loaded_[i] = i * kRows < existing ? load_float4(from, policy_evict_normal()) : float4{};
      from += kRows * step;
    }
  }
  /// Waits for it. `memory` is where shared memory begins.
  __device__ __forceinline__ void store(const SplitTile<Shape>& to, std::byte* memory) const {
    const std::uint32_t begin = shared_address(memory);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const float4& x = loaded_[i];
      const SplitPair left = split(x.x, x.y);
      const SplitPair right = split(x.z, x.w);
      const auto place = [&](const Tile<Shape>& tile) {
        return reinterpret_cast<uint2*>(memory +
                                        (tile.at(i * kRows + own_row(), channel() * 2) - begin));
      };
      *place(to.high) = {left.high, right.high};
      *place(to.low) = {left.low, right.low};
    }
  }

 private:
  static constexpr int kPerCopy = 4;  // channels of a float4
  static constexpr int kLanes = kChannels / kPerCopy;
  static constexpr int kRows = Shape::kThreads / kLanes;  // at a time
  static constexpr int kCopies = Shape::kChunk / kRows;
  static_assert(kRows * kCopies == Shape::kChunk);

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kLanes * kPerCopy; }
  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / kLanes; }

  float4 loaded_[kCopies];
};

/// The keys and values of one block in memory, and a chunk of them on its way. Strides and sizes stay
/// with the parameters: registers are for what is on its way.
template <class Shape>
class LoadedTokens {
 public:
  __device__ LoadedTokens(const SplitWalkParams& p, const Walk& walk)
      : p_(p),
        k_(first_place<OfKeys>(p.k, walk, walk.head / p.heads_per_key, first_key_of<Shape>(walk))),
        v_(first_place<OfValues>(p.v, walk, walk.head / p.heads_per_value, walk.first_value)) {}

  __device__ __forceinline__ void fetch(const Walk& walk, int chunk) {
    if (chunk >= walk.chunks) return;
    const std::int64_t first = walk.position(chunk);
    const int rows = walk.rows(chunk);
    const auto fetch = [&](auto& loaded, const float* from, const ConstTokenView& view,
                           int channels) {
      const std::int64_t apart = step(walk, view);
      loaded.fetch(from + first * apart, apart, rows, channels);
    };
    fetch(loaded_k_, k_, p_.k, p_.key_channels - first_key_of<Shape>(walk));
    fetch(loaded_v_, v_, p_.v, p_.value_channels - walk.first_value);
  }
  /// Splits what was fetched, which is this chunk.
  __device__ __forceinline__ void store(const SplitStage<Shape, false>& to, std::byte* memory,
                                        const Walk& walk, int chunk) const {
    if (chunk >= walk.chunks) return;
    loaded_k_.store(to.k, memory);
    loaded_v_.store(to.v, memory);
  }

 private:
  using OfKeys = LoadedTile<Shape, Shape::kKeys>;
  using OfValues = LoadedTile<Shape, Shape::kValues>;

  const SplitWalkParams& p_;
  const float* const k_;
  const float* const v_;
  OfKeys loaded_k_;
  OfValues loaded_v_;
};

}  // namespace attune::cuda::chunk_mma
