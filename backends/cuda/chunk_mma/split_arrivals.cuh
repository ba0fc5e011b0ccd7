// Chunks of f32 tensors on their way to tiles of split_tiles.cuh, for a block that has threads for
// nothing else (split_roles.cuh): they are split where they arrived. Of a panel's 64 channels the first
// 32 arrive where high parts go, as they are, the others where low parts go; the warp that copied a row
// splits it. (Lanes side by side copy what lies side by side in shared memory, too: a copy whose lanes
// do not is as many requests of the L2 cache as it has lanes.)
#pragma once

#include "cuda/chunk_mma/split_tiles.cuh"

namespace attune::cuda::chunk_mma {

/// What one thread brings of a chunk of kChannels channels of one tensor. A warp has some rows at a
/// time: its lanes copy four channels each, of half of them and of the others, then split eight each.
template <class Shape, int kChannels>
class ArrivingTile {
 public:
  /// Where a thread's first copy is, from the chunk's first token on, which are `step` apart.
  __device__ static std::int64_t place(std::int64_t step) {
    const int thread = thread_of_role<Shape>();
    return row(thread) * step + channel(thread);
  }

  /// Begins to copy it from there; zeros for tokens from `rows` on and for channels from `channels`
  /// on, which are a multiple of kPerCopy.
  __device__ static __forceinline__ void copy(const SplitTile<Shape>& to, const float* from,
                                              std::int64_t step, int rows, int channels) {
    constexpr int kEarly = kPanelChannels / 2;
    const int thread = thread_of_role_again<Shape>();
    const std::uint32_t part = channel(thread) % kPanelChannels < kEarly ? 0 : to.low_behind();
    const int byte = channel(thread) / kPanelChannels * kPanelRowBytes +
                     channel(thread) % kEarly * static_cast<int>(sizeof(float));
    const int existing = channel(thread) < channels ? rows - row(thread) : 0;
#pragma unroll
    for (int i = 0; i < kSplits; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int rows_behind = i * kRowsAtOnce + half * kHalf;
        copy_async_16(to.high.at(row(thread) + rows_behind, byte) + part,
                      half == 0 ? from : from + kHalf * step, rows_behind < existing);
      }
      from += kRowsAtOnce * step;
    }
  }
  /// Splits what the warp has copied of some tiles.
  template <class... Tiles>
  __device__ static __forceinline__ void split_there(const Tiles&... tiles) {
    const int thread = thread_of_role_again<Shape>();
#pragma unroll
    for (int batch = 0; batch < kSplits; batch += kBatch) {
      Batch loaded[] = {Batch(tiles, thread, batch)...};
      __syncwarp();  // all lanes have theirs
      int number = 0;
      (loaded[number++].store(tiles, thread, batch), ...);
    }
  }

 private:
  static constexpr int kPerCopy = 4;
  static constexpr int kPerSplit = 2 * kPerCopy;
  static constexpr int kRowsOfWarp = kWarpSize * kPerSplit / kChannels;
  static constexpr int kHalf = kRowsOfWarp / 2;
  static constexpr int kRowsAtOnce = Shape::kThreads / kWarpSize * kRowsOfWarp;
  static constexpr int kSplits = Shape::kChunk / kRowsAtOnce;
  static constexpr int kBatch = kSplits < 2 ? kSplits : 2;  // in registers at once
  static_assert(kRowsOfWarp % 2 == 0 && kRowsAtOnce * kSplits == Shape::kChunk);
  static_assert(kSplits % kBatch == 0);

  /// Of a thread's first copy.
  __device__ static int channel(int thread) { return thread * kPerCopy % kChannels; }
  __device__ static int row(int thread) {
    return thread / kWarpSize * kRowsOfWarp + thread % kWarpSize * kPerCopy / kChannels;
  }

  /// A lane's octets of some rows of a tile. Of half of the lanes, whose channels arrived in the place
  /// of low parts, the second four come first: they would share banks with the others.
  class Batch {
   public:
    __device__ __forceinline__ Batch(const SplitTile<Shape>& tile, int thread, int batch) {
      const std::uint32_t part = is_late(thread) ? tile.low_behind() : 0;
      const int byte = panel(thread) + octet(thread) % 4 * 32 + (is_late(thread) ? 16 : 0);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t from = tile.high.at(split_row(thread, batch + i), byte) + part;
        loaded_[i][0] = load_shared_16(from);
        loaded_[i][1] = load_shared_16(from ^ 16);
      }
    }
    __device__ __forceinline__ void store(const SplitTile<Shape>& tile, int thread,
                                          int batch) const {
      const bool late = is_late(thread);
      const auto in_order = [late](std::uint32_t x, std::uint32_t y, std::uint32_t z,
                                   std::uint32_t w) {
        return uint4{late ? z : x, late ? w : y, late ? x : z, late ? y : w};
      };
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t to =
            tile.high.at(split_row(thread, batch + i), panel(thread) + octet(thread) % 8 * 16);
        const SplitPair a = split_bits(loaded_[i][0].x, loaded_[i][0].y);
        const SplitPair b = split_bits(loaded_[i][0].z, loaded_[i][0].w);
        const SplitPair c = split_bits(loaded_[i][1].x, loaded_[i][1].y);
        const SplitPair d = split_bits(loaded_[i][1].z, loaded_[i][1].w);
        store_shared_16(to, in_order(a.high, b.high, c.high, d.high));
        store_shared_16(to + tile.low_behind(), in_order(a.low, b.low, c.low, d.low));
      }
    }

   private:
    static constexpr int kLanes = kChannels / kPerSplit;  // of a row

    __device__ static int octet(int thread) { return thread % kLanes; }
    __device__ static int panel(int thread) { return octet(thread) / 8 * kPanelRowBytes; }
    __device__ static bool is_late(int thread) { return octet(thread) % 8 >= 4; }
    __device__ static int split_row(int thread, int i) {
      return thread / kWarpSize * kRowsOfWarp + thread % kWarpSize / kLanes + i * kRowsAtOnce;
    }
    __device__ static SplitPair split_bits(std::uint32_t x, std::uint32_t y) {
      return split(__uint_as_float(x), __uint_as_float(y));
    }

    uint4 loaded_[kBatch][2];
  };
};

/// The tokens of one block in memory. Strides and sizes stay with the parameters.
template <class Shape>
class ArrivingTokens {
 public:
  using Stage = SplitStage<Shape, true>;

  __device__ ArrivingTokens(const SplitWalkParams& p, const Walk& walk)
      : p_(p),
        k_(first_place<OfKeys>(p.k, walk, walk.head / p.heads_per_key, first_key_of<Shape>(walk))),
        v_(first_place<OfValues>(p.v, walk, walk.head / p.heads_per_value, walk.first_value)),
        q_(first_place<OfKeys>(p.q, walk, walk.head, first_key_of<Shape>(walk))) {}

  /// Begins to copy the next chunk, if there is one, to its stage. A group of copies each.
  __device__ __forceinline__ void copy(const Stage& to, const Walk& walk, int chunk) {
    if (chunk < walk.chunks) {
      const int rows = walk.rows(chunk);
      const int keys = p_.key_channels - first_key_of<Shape>(walk);
      const auto copy = [&]<class Tile>(Tile, const SplitTile<Shape>& tile, const float*& from,
                                        const ConstTokenView& view, int channels) {
        const std::int64_t apart = step(walk, view);
        Tile::copy(tile, from, apart, rows, channels);
        from += Shape::kChunk * apart;
      };
      copy(OfKeys(), to.k, k_, p_.k, keys);
      copy(OfValues(), to.v, v_, p_.v, p_.value_channels - walk.first_value);
      copy(OfKeys(), to.q, q_, p_.q, keys);
    }
    copy_async_commit();
  }
  /// Splits what the thread's warp has copied of a chunk, once each lane has waited for its copies.
  __device__ static __forceinline__ void split_there(const Stage& stage) {
    __syncwarp();  // what other lanes copied is there
    OfKeys::split_there(stage.k, stage.q);
    OfValues::split_there(stage.v);
  }

 private:
  using OfKeys = ArrivingTile<Shape, Shape::kKeys>;
  using OfValues = ArrivingTile<Shape, Shape::kValues>;

  const SplitWalkParams& p_;
  const float* k_;  // of the next chunk
  const float* v_;
  const float* q_;
};

}  // namespace attune::cuda::chunk_mma
