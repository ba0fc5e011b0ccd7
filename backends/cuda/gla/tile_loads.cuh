// What blocks of a chunk and head move between global and shared memory.
#pragma once

#include "cuda/chunk_wgmma/backward/tiles.cuh"
#include "cuda/gla/place.cuh"

namespace attune::cuda::gla_backward {

using chunk_backward::FragmentPlace;
using chunk_backward::kDepth;
using chunk_backward::kPanelBytes;
using chunk_backward::Tile;

/// Tiles of the workspace on their way to shared memory, one group of them after the other. One
/// thread starts a group, all wait for it.
class TileLoads {
 public:
  __device__ explicit TileLoads(SharedBarrier& full) : full_(full) {}

  /// One thread, before all others.
  __device__ void init() const {
    barrier_init(&full_, 1);
    barrier_init_fence();
  }
  /// The same thread: begins a group of so many bytes.
  __device__ void expect(std::uint32_t bytes) const { barrier_arrive_expecting(&full_, bytes); }
  __device__ void start(std::uint32_t to, const void* from, std::uint32_t bytes) const {
    bulk_load(to, from, bytes, &full_);
  }
  __device__ void wait() {
    barrier_wait(&full_, phase_);
    phase_ ^= 1U;
  }

 private:
  SharedBarrier& full_;
  std::uint32_t phase_ = 0;
};

/// This thread of the block, as if it were not known yet: what is computed from it is computed
/// anew, not kept in registers.
__device__ __forceinline__ int unknown_thread() {
  auto thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

/// This thread's among the block's warpgroups; the compiler sees that a warp has one.
__device__ __forceinline__ int warpgroup_of_block() {
  return __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
}

/// All of a block's threads start to copy rows, of channels from `first` on, to a tile: that of
/// position i to row row_of(i). Zeros where there is no token or channel.
template <class T, int kThreads, int kD, class F>
__device__ __forceinline__ void start_rows(Tile<kD>& tile, const ConstTokenView& from,
                                           const ChunkPlace& chunk, std::int64_t head, int first,
                                           int channels, F&& row_of) {
  constexpr int kWords = kD / 8;  // of a row
  const T* const rows =
      static_cast<const T*>(from.data) + row_offset(from, chunk.batch, chunk.token, head);
  for (int i = unknown_thread(); i < kChunkTokens * kWords; i += kThreads) {
    const int position = i / kWords;
    const int channel = i % kWords * 8;
    const bool valid = chunk.has(position) && first + channel < channels;
    copy_async_16(shared_address(&tile) + tile_byte(row_of(position), channel),
                  rows + (valid ? chunk.row(position) * from.token + first + channel : 0), valid);
  }
}

/// Where this lane points ldmatrix and stmatrix for 16 columns from 16 `step` on of an accumulator,
/// channels by tokens, in a panel of tokens by channels: column c is in row row_of(c).
template <class F>
__device__ __forceinline__ std::uint32_t columns_address(std::uint32_t panel,
                                                         const FragmentPlace& at, int step,
                                                         F&& row_of) {
  const int column = kDepth * step + (at.lane() >> 4) * 8 + (at.lane() & 7);
  const int channel = 16 * at.warp() + (at.lane() >> 3 & 1) * 8;
  return panel + swizzled(static_cast<std::uint32_t>(row_of(column)),
                          static_cast<std::uint32_t>(channel) * 2);
}

/// All of a block's threads write the rows of a tile, which are in the order of memory.
template <class T, int kThreads, int kD>
__device__ __forceinline__ void write_rows(const TokenView& to, const Tile<kD>& tile,
                                           const ChunkPlace& chunk, int first, int channels) {
  constexpr int kWords = kD / 8;
  T* const rows =
      static_cast<T*>(to.data) + row_offset(to, chunk.batch, chunk.token, chunk.head) + first;
  for (int i = unknown_thread(); i < chunk.rows * kWords; i += kThreads) {
    const int row = i / kWords;
    const int channel = i % kWords * 8;
    if (first + channel >= channels) continue;
    *reinterpret_cast<uint4*>(rows + row * to.token + channel) =
        *reinterpret_cast<const uint4*>(tile.bytes[0] + tile_byte(row, channel));
  }
}

}  // namespace attune::cuda::gla_backward
