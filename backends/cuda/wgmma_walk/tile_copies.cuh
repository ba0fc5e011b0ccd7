// Tiles of q, k, v and o on their way between global and shared memory: the work of one warp each.
// Those that load run ahead of those who use the tiles.
#pragma once

#include "cuda/tiles/ring.cuh"
#include "cuda/tiles/wgmma.cuh"
#include "cuda/wgmma_walk/decays.cuh"
#include "cuda/wgmma_walk/items.cuh"

namespace attune::cuda::chunk_wgmma {

/// Zeroes the rows of a tile from `rows` on.
template <int kPanels>
__device__ __forceinline__ void clear_rows(std::byte* tile, int rows) {
  constexpr int kPieces = kPanelRowBytes / sizeof(uint4);
  const int first = rows * kPieces + static_cast<int>(threadIdx.x) % kWarpSize;
  for (int panel = 0; panel < kPanels; ++panel) {
    auto* const pieces = reinterpret_cast<uint4*>(tile + panel * kPanelBytes);
    for (int i = first; i < kChunkTokens * kPieces; i += kWarpSize) pieces[i] = uint4{};
  }
}

/// One operand's tiles, kPanels side by side to a tile, as a warp loads them, at most kUnderWay at
/// once.
///
/// Rows past the end of a batch's tokens arrive as zeros. Those past the end of a packed sequence
/// are the next one's: where `landed` is a barrier (of this warp alone) they are zeroed too, so
/// that not even a NaN of theirs gets through.
template <int kPanels, int kStages, int kUnderWay = kStages>
class TileLoader {
 public:
  __device__ __forceinline__ TileLoader(const WalkParams& p, const WalkOperand& operand,
                                        Ring<kStages>& ring, std::byte* stages,
                                        SharedBarrier* landed)
      : operand_(operand),
        ring_(ring),
        stages_(stages),
        landed_(p.sequences.bounds != nullptr ? landed : nullptr) {
    if (leads()) tensor_map_prefetch(&operand.map);
  }

  /// Loads the chunk at `row` of the item, channels from x on.
  __device__ __forceinline__ void load(const WalkItem& item, int row, int x) {
    std::byte* const tile = stages_ + at_.stage * kTileBytes;
    const bool clears = landed_ != nullptr && item.rows_from(row) < kChunkTokens;
    SharedBarrier* const arrival = clears ? landed_ : &ring_.full[at_.stage];
    ring_.wait_empty(at_);
    // Before the first tiles there are none to wait for: that phase counts as ended.
    if constexpr (kUnderWay < kStages) ring_.wait_full(at_.before(kUnderWay));
    if (leads()) {
      const int head = static_cast<int>(item.head / operand_.heads_per_kv);
      barrier_arrive_expecting(arrival, kTileBytes);
      for (int panel = 0; panel < kPanels; ++panel) {
        tensor_load(shared_address(tile + panel * kPanelBytes), &operand_.map, arrival,
                    x + panel * kPanelChannels, head, item.begin + row, item.batch);
      }
    }
    if (clears) clear_tail(tile, item.rows_from(row));
    at_.advance();
  }

 private:
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  __device__ __forceinline__ static bool leads() { return threadIdx.x % kWarpSize == 0; }

  __device__ __forceinline__ void clear_tail(std::byte* tile, int rows) {
    barrier_wait(landed_, landed_phase_);
    landed_phase_ ^= 1U;
    clear_rows<kPanels>(tile, rows);
    async_proxy_fence();
    ring_.publish_copied(at_.stage);
  }

  const WalkOperand& operand_;
  Ring<kStages>& ring_;
  std::byte* stages_;
  SharedBarrier* landed_;
  std::uint32_t landed_phase_ = 0;
  RingPosition<kStages> at_;
};

/// Calls load(item, row) for all chunks of the block's items.
template <class Shape, class Load>
__device__ __forceinline__ void for_each_chunk(const WalkParams& p, WalkRange range, Load&& load) {
  for_each_item<Shape>(p, range, [&](const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) load(item, item.row_of(step, p.reverse));
  });
}

template <class Shape_>
struct WalkShared {
  using Shape = Shape_;
  std::byte q[Shape::kStages][Shape::kPanelsK * kPanelBytes];
  std::byte k[Shape::kStages][Shape::kPanelsK * kPanelBytes];
  std::byte v[Shape::kValueStages][Shape::kPanelsV * kPanelBytes];  // and then o
  std::byte scores[Shape::kScoreStages][kPanelBytes];
  ChunkDecays decays[Shape::kDecayStages];
  Ring<Shape::kStages> q_ring;
  Ring<Shape::kStages> k_ring;
  Ring<Shape::kValueStages> v_ring;
  Ring<Shape::kScoreStages> score_ring;
  Ring<Shape::kDecayStages> decay_ring;
  SharedBarrier output_full[Shape::kValueStages];  // v has been used and o is in its place
  SharedBarrier k_landed;
  SharedBarrier v_landed;
};
/// What a block may have on sm_90.
inline constexpr std::size_t kMostSharedBytes = 227 * 1024;

/// Dynamic shared memory begins at a multiple of 1024 bytes in a kernel that has no other.
inline constexpr std::uint32_t kTileAlignment = 1024;
extern __shared__ std::byte shared_memory[];

#if ATTUNE_SM90A_CODE

/// Copies the first rows of a panel to the memory of o, by a warp. `channels`: of the panel, that
/// exist.
template <class T>
__device__ __forceinline__ void copy_rows(const std::byte* panel, T* to, std::int64_t token_stride,
                                          int rows, std::int64_t channels) {
  constexpr int kPieceElements = sizeof(uint4) / sizeof(T);
  constexpr int kPieces = kPanelChannels / kPieceElements;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < rows * kPieces; i += kWarpSize) {
    const int row = i / kPieces;
    const int channel = i % kPieces * kPieceElements;
    const std::byte* const piece = panel + swizzled(row, channel * sizeof(T));
    T* const at = to + row * token_stride + channel;
    if (channel + kPieceElements <= channels) {
      *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(piece);
    } else {
      for (int e = 0; channel + e < channels; ++e) at[e] = reinterpret_cast<const T*>(piece)[e];
    }
  }
}

/// Queues the copies of one chunk's outputs, whose panels begin at `tile`. A panel would reach
/// beyond the end of a packed sequence: its last rows are copied by hand.
template <class T, class Shape>
__device__ __forceinline__ void store_tile(const WalkParams& p, const WalkItem& item, int row,
                                           const std::byte* tile) {
  const int rows = item.rows_from(row);
  const bool by_hand = rows < kChunkTokens && p.sequences.bounds != nullptr;
  const TokenView& o = p.o_rows;
  for (int panel = 0; panel < Shape::kPanelsV; ++panel) {
    const std::byte* const from = tile + panel * kPanelBytes;
    const int x = item.tile * Shape::kTileV + panel * kPanelChannels;
    if (by_hand) {
      T* const to =
          static_cast<T*>(o.data) + x + row_offset(o, item.batch, item.begin + row, item.head);
      copy_rows<T>(from, to, o.token, rows, p.extents.V - x);
    } else if (threadIdx.x % kWarpSize == 0) {
      tensor_store(&p.o, shared_address(from), x, item.head, item.begin + row, item.batch);
    }
  }
  if (threadIdx.x % kWarpSize == 0) bulk_commit();
}

/// The work of the warp that stores the outputs of all chunks, from the stages that v came in, and
/// hands these back once they have been read.
template <class T, class Shared>
__device__ __forceinline__ void store_tiles(const WalkParams& p, Shared& shared) {
  using Shape = typename Shared::Shape;
  RingPosition<Shape::kValueStages> at;
  int held = -1;
  for_each_item<Shape>(p, main_walk(p), [&](const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) {
      barrier_wait(&shared.output_full[at.stage], at.phase);
      async_proxy_fence();  // here once, where all state warps would wait for their stores
      store_tile<T, Shape>(p, item, item.row_of(step, p.reverse), shared.v[at.stage]);
      bulk_wait_read<1>();
      if (held >= 0) shared.v_ring.release(held);
      held = at.stage;
      at.advance();
    }
  });
  bulk_wait_read<0>();
}

#endif

}  // namespace attune::cuda::chunk_wgmma
