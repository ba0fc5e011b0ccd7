// Moving tiles between global and shared memory.
#pragma once

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/chunks/token_tile.cuh"

namespace attune::cuda {

/// A tensor, the walk's head among its heads, and the first of the channels that the walk takes.
struct HeadSource {
  const CUtensorMap* map;
  int head;
  int channel = 0;
};

/// Where the walk's outputs of 64 channels go: a tensor, also as rows, and the same of it.
struct PanelTarget {
  const CUtensorMap& map;
  const TokenView& rows;
  int channels;  // of the tensor
  int head;
  int channel;
};

/// One thread: starts the copy of a tile, which completes on `full`.
template <int kD>
__device__ __forceinline__ void load_tile(TokenTile<kD>& tile, const HeadSource& from,
                                          SharedBarrier* full, const ChunkWalk& walk, int n) {
#pragma unroll
  for (int panel = 0; panel < kD / kPanelChannels; ++panel) {
    tensor_load(shared_address(tile.bytes[panel]), from.map, full,
                from.channel + panel * kPanelChannels, from.head, walk.token(n), walk.batch);
  }
}

/// A warp: clears the rows of a tile that are another sequence's.
template <int kD>
__device__ __forceinline__ void clear_rows_from(TokenTile<kD>& tile, int first_row) {
  constexpr int kRowBytes = kPanelChannels * 2;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int panel = 0; panel < kD / kPanelChannels; ++panel) {
    auto* words = reinterpret_cast<uint4*>(tile.bytes[panel]);
    const int count = kPanelBytes / static_cast<int>(sizeof(uint4));
    for (int i = first_row * kRowBytes / static_cast<int>(sizeof(uint4)) + lane; i < count;
         i += kWarpSize) {
      words[i] = uint4{};
    }
  }
}

/// A tile, and where it is loaded from.
template <int kD>
struct TileLoad {
  const HeadSource& source;
  TokenTile<kD>& tile;
};
template <int kD>
__device__ __forceinline__ TileLoad<kD> from(const HeadSource& source, TokenTile<kD>& tile) {
  return {source, tile};
}

/// The load of every tile of a stage by one warp. Tiles that hold rows of another sequence pass
/// through this warp first, by way of `private_full`, which is used once a walk.
class StageLoader {
 public:
  __device__ StageLoader(SharedBarrier* private_full) : private_full_(private_full) {}

  template <int... kD>
  __device__ void load(SharedBarrier* full, const ChunkWalk& walk, int n,
                       const TileLoad<kD>&... loads) const {
    const bool shared = walk.has_other_rows(n);
    SharedBarrier* const barrier = shared ? private_full_ : full;
    const bool first_lane = threadIdx.x % kWarpSize == 0;
    if (first_lane) {
      barrier_arrive_expecting(barrier, (sizeof(TokenTile<kD>) + ...));
      (load_tile(loads.tile, loads.source, barrier, walk, n), ...);
    }
    if (!shared) return;
    barrier_wait(barrier, 0);
    (clear_rows_from(loads.tile, walk.rows(n)), ...);
    async_proxy_fence();
    __syncwarp();  // all lanes have cleared
    if (first_lane) barrier_arrive(full);
  }

 private:
  SharedBarrier* private_full_;
};

/// A warpgroup: writes those rows of a panel that are the sequence's, with ordinary stores.
template <class T>
__device__ __forceinline__ void write_panel_rows(const PanelTarget& to, const unsigned char* panel,
                                                 const ChunkWalk& walk, int n) {
  constexpr int kWordsPerRow = kPanelChannels * 2 / static_cast<int>(sizeof(uint4));
  constexpr int kPerWord = static_cast<int>(sizeof(uint4) / sizeof(T));
  const int rows = walk.rows(n);
  for (int i = static_cast<int>(threadIdx.x) % kWarpgroupSize; i < rows * kWordsPerRow;
       i += kWarpgroupSize) {
    const int row = i / kWordsPerRow;
    const int word = i % kWordsPerRow;
    const int channel = to.channel + word * kPerWord;
    if (channel >= to.channels) continue;
    const std::int64_t offset =
        row_offset(to.rows, walk.batch, walk.token(n) + row, to.head) + channel;
    const std::uint32_t from =
        swizzled(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(word) * 16);
    *reinterpret_cast<uint4*>(static_cast<T*>(to.rows.data) + offset) =
        *reinterpret_cast<const uint4*>(panel + from);
  }
}

/// A warpgroup: writes a panel that its threads have filled and fenced, and synchronised on.
template <class T>
__device__ __forceinline__ void write_panel(const PanelTarget& to, const unsigned char* panel,
                                            const ChunkWalk& walk, int n) {
  if (walk.has_other_rows(n)) {
    write_panel_rows<T>(to, panel, walk, n);
  } else if (threadIdx.x % kWarpgroupSize == 0) {
    tensor_store(&to.map, shared_address(panel), to.channel, to.head, walk.token(n), walk.batch);
    bulk_commit();
  }
}

/// A barrier of one warpgroup of the block.
__device__ __forceinline__ void warpgroup_sync(int group) {
  // Constant ids: see named_barrier_sync().
  switch (group) {
    case 0:
      return named_barrier_sync<1>(kWarpgroupSize);
    case 1:
      return named_barrier_sync<2>(kWarpgroupSize);
    default:
      return named_barrier_sync<3>(kWarpgroupSize);
  }
}

}  // namespace attune::cuda
