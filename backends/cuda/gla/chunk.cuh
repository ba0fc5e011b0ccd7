// A chunk of a sequence and head: which tokens it has, where they lie, and how blocks move its
// tiles between global and shared memory.
#pragma once

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/chunks/token_tile.cuh"
#include "cuda/chunks/views.cuh"
#include "cuda/gla/params.hpp"

namespace attune::cuda::gla {

__device__ __forceinline__ float2 times(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }

/// A chunk of one head. Positions are tokens in the order of processing.
struct HeadChunk {
  std::int64_t index = 0;  // of [heads, slots]
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;  // the head of y and z
  std::int64_t batch = 0;
  std::int64_t token = 0;  // the first in memory
  int rows = 0;            // tokens, 0 for a slot of no sequence, or of one that is left out
  bool reverse = false;
  bool has_flows = true;  // or those of the walks are zeros, and not in the workspace

  /// The row of a tile, or of memory from `token` on. Where it is past the sequence, there is no
  /// such token.
  __device__ int row(int position) const {
    return reverse ? kChunkTokens - 1 - position : position;
  }
  __device__ bool has(int position) const { return row(position) < rows; }
  /// Bit i: there is a token at position first + i, of kCount.
  template <int kCount>
  __device__ unsigned tokens_from(int first) const {
    constexpr unsigned kAll = (1U << kCount) - 1;
    if (reverse) return kAll << min(max(kChunkTokens - rows - first, 0), kCount) & kAll;
    return kAll >> min(max(first + kCount - rows, 0), kCount);
  }
};

/// The sequence that has a slot, or the last one that starts before it.
__device__ __forceinline__ unsigned sequence_of_slot(const GlaParams& p, unsigned slot) {
  if (p.sequences.bounds == nullptr) {
    return slot / static_cast<unsigned>((p.sequences.tokens + kChunkTokens - 1) / kChunkTokens);
  }
  unsigned low = 0;
  auto high = static_cast<unsigned>(p.sequence_count) - 1;
  while (low < high) {
    const unsigned middle = (low + high + 1) / 2;
    const bool later = first_chunk_slot(p.sequences, middle, span_of(p.sequences, middle)) > slot;
    (later ? high : low) = later ? middle - 1 : middle;
  }
  return low;
}

/// In the place of a chunk's index: there is none.
inline constexpr unsigned kNoChunk = ~0U;

/// Chunk `index` of [heads, slots], of which there are fewer than 2^30, or kNoChunk.
__device__ __forceinline__ HeadChunk head_chunk(const GlaParams& p, unsigned index) {
  if (index == kNoChunk) return {};
  const auto slots = static_cast<unsigned>(p.slots);
  const unsigned head = index / slots;
  const unsigned slot = index - head * slots;
  HeadChunk chunk;
  chunk.index = index;
  chunk.head = head;
  chunk.kv_head = head / static_cast<unsigned>(p.heads_per_kv);
  chunk.reverse = p.reverse;
  chunk.sequence = sequence_of_slot(p, slot);
  const SequenceSpan span = span_of(p.sequences, chunk.sequence);
  const std::int64_t number = slot - first_chunk_slot(p.sequences, chunk.sequence, span);
  chunk.batch = span.batch;
  chunk.token = span.begin + number * kChunkTokens;
  const std::int64_t left = span.is_left_out ? 0 : span.length - number * kChunkTokens;
  chunk.rows = static_cast<int>(min(max(left, std::int64_t{0}), std::int64_t{kChunkTokens}));
  chunk.has_flows = span.length > kChunkTokens || !p.has_no_states();
  return chunk;
}

/// The chunk that a block takes, of [heads, slots], or kNoChunk: neighbours in time take neighbours in
/// memory, which are the heads of the same tokens.
__device__ __forceinline__ unsigned chunk_of_block(const GlaParams& p, unsigned block) {
  const auto heads = static_cast<unsigned>(p.heads);
  unsigned slot = block / heads;
  if (p.walked_chunks.numbers != nullptr) {
    const int listed = p.walked_chunks.numbers[slot];
    if (listed < 0) return kNoChunk;
    slot = static_cast<unsigned>(listed);
  }
  return block % heads * static_cast<unsigned>(p.slots) + slot;
}

/// Byte of a channel (an even one, of which two are accessed) of a row in a tile.
__device__ __forceinline__ std::uint32_t tile_byte(int row, int channel) {
  return static_cast<std::uint32_t>(channel / kPanelChannels * kPanelBytes) +
         swizzled(static_cast<std::uint32_t>(row),
                  static_cast<std::uint32_t>(channel % kPanelChannels) * 2);
}

/// Channels that a row of a side's tiles has room for.
__host__ __device__ inline int own_channels(const GlaParams& p) {
  return p.tile_channels * p.own_tiles;
}
__host__ __device__ inline int other_channels(const GlaParams& p) {
  return p.tile_channels * p.other_tiles;
}

/// The first panel of the `count` of tile `index` of the workspace.
__device__ __forceinline__ unsigned char* workspace_panel(void* tiles, std::int64_t index,
                                                          int count) {
  return static_cast<unsigned char*>(tiles) + index * count * kPanelBytes;
}

/// A row of a chunk in a tensor of the workspace, from a channel on.
template <class T>
__device__ __forceinline__ T* chunk_row(const ChunkRows& rows, int tensor, std::int64_t chunk,
                                        int row, int channel) {
  return reinterpret_cast<T*>(rows.data) +
         ((tensor * rows.chunks + chunk) * kChunkTokens + row) * rows.channels + channel;
}
/// One thread: starts the load of a chunk's tile of kD channels from one on, zeros where there are none.
template <int kD>
__device__ __forceinline__ void load_chunk_tile(std::uint32_t to, const ChunkRows& from, int tensor,
                                                std::int64_t chunk, int channel,
                                                SharedBarrier* full) {
#pragma unroll
  for (int panel = 0; panel < kD / kPanelChannels; ++panel) {
    tensor_load(to + static_cast<std::uint32_t>(panel * kPanelBytes), &from.map, full,
                channel + panel * kPanelChannels, 0, static_cast<int>(chunk) * kChunkTokens,
                tensor);
  }
}

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
  template <int kD>
  __device__ void start_tile(std::uint32_t to, const ChunkRows& from, int tensor,
                             const HeadChunk& chunk, int channel) const {
    load_chunk_tile<kD>(to, from, tensor, chunk.index, channel, &full_);
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

/// What a thread copies of a tile of kD channels that kThreads copy: 16 bytes, at the same
/// channels, of every kAtOnce-th row.
template <int kThreads, int kD>
struct RowPieces {
  static constexpr int kWords = kD / 8;  // of a row
  static constexpr int kAtOnce = kThreads / kWords;
  static constexpr int kCount = kChunkTokens / kAtOnce;
  static_assert(kAtOnce * kWords == kThreads && kAtOnce * kCount == kChunkTokens);

  int row;  // the first
  int channel;
  __device__ __forceinline__ RowPieces() {
    const int thread = unknown_thread();
    row = thread / kWords;
    channel = thread % kWords * 8;
  }
  /// Where they are in a row of the tile.
  __device__ __forceinline__ std::uint32_t byte(int tile_row) const {
    return tile_byte(tile_row, channel);
  }
};

/// The row of a permuted tile (decays.cuh) that holds a position. The rows of an even position and
/// of the next are neighbours; those of positions 16 apart are two apart.
__device__ __forceinline__ int permuted_row(int position) {
  return position % 16 / 2 * 8 + position / 16 * 2 + position % 2;
}

/// All of a block's threads start to copy rows, of channels from `first` on, to a tile: that of
/// position i to row i, or to the one of a permuted tile. Zeros where there is no token or channel.
template <class T, int kThreads, bool kPermuted, int kD>
__device__ __forceinline__ void start_rows(TokenTile<kD>& tile, const ConstTokenView& from,
                                           const HeadChunk& chunk, std::int64_t head, int first,
                                           int channels) {
  using Pieces = RowPieces<kThreads, kD>;
  static_assert(!kPermuted || Pieces::kAtOnce % 16 == 0);
  constexpr int kTileStep = kPermuted ? Pieces::kAtOnce / 8 : Pieces::kAtOnce;
  const Pieces pieces;
  const std::uint32_t to = shared_address(&tile);
  const int tile_row = kPermuted ? permuted_row(pieces.row) : pieces.row;
  const int rows = first + pieces.channel < channels ? chunk.rows : 0;
  const int step = chunk.reverse ? -Pieces::kAtOnce : Pieces::kAtOnce;
  int row = chunk.row(pieces.row);
  const T* at = static_cast<const T*>(from.data) +
                row_offset(from, chunk.batch, chunk.token + row, head) + first + pieces.channel;
#pragma unroll 4
  for (int i = 0; i < Pieces::kCount; ++i) {
    copy_async_16(to + pieces.byte(tile_row + i * kTileStep), at, row < rows);
    row += step;
    at += step * from.token;
  }
}

/// Where this lane points ldmatrix and stmatrix for 16 columns from 16 `step` on of an accumulator,
/// channels by tokens, in a panel of tokens by channels: column c is in row row_of(c).
template <class F>
__device__ __forceinline__ std::uint32_t columns_address(std::uint32_t panel,
                                                         const FragmentLane& at, int step,
                                                         F&& row_of) {
  const int column = kDepth * step + (at.lane() >> 4) * 8 + (at.lane() & 7);
  const int channel = 16 * at.warp() + (at.lane() >> 3 & 1) * 8;
  return panel + swizzled(static_cast<std::uint32_t>(row_of(column)),
                          static_cast<std::uint32_t>(channel) * 2);
}

/// All of a block's threads write the rows of a tile, which are in the order of memory.
template <class T, int kThreads, int kD>
__device__ __forceinline__ void write_rows(const TokenView& to, const TokenTile<kD>& tile,
                                           const HeadChunk& chunk, int first, int channels) {
  using Pieces = RowPieces<kThreads, kD>;
  const Pieces pieces;
  const int rows = first + pieces.channel < channels ? chunk.rows : 0;
  T* at = static_cast<T*>(to.data) +
          row_offset(to, chunk.batch, chunk.token + pieces.row, chunk.head) + first +
          pieces.channel;
#pragma unroll 4
  for (int i = 0; i < Pieces::kCount; ++i) {
    const int row = pieces.row + i * Pieces::kAtOnce;
    if (row < rows) {
      *reinterpret_cast<uint4*>(at) =
          *reinterpret_cast<const uint4*>(tile.bytes[0] + pieces.byte(row));
    }
    at += Pieces::kAtOnce * to.token;
  }
}

}  // namespace attune::cuda::gla
