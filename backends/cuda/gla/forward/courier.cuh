// How operands get from the blocks that make them to those that walk: by way of global memory, and mostly
// no further than the L2 cache.
#pragma once

#include "cuda/gla/forward/operands.cuh"
#include "cuda/gla/forward/walk.hpp"
#include "cuda/tiles/publication.cuh"
#include "cuda/wgmma_walk/items.cuh"

namespace attune::cuda::gla::forward {

using chunk_wgmma::main_walk;
using chunk_wgmma::WalkParams;

#if ATTUNE_SM90A_CODE

using chunk_wgmma::item_at;
using chunk_wgmma::state_index;
using chunk_wgmma::value_tiles;
using chunk_wgmma::WalkItem;
using chunk_wgmma::WalkRange;
using chunk_wgmma::warp_uniform;

/// Where a head's operands of a chunk are.
__device__ __forceinline__ std::int64_t chunk_index(const WalkParams& p, std::int64_t slots,
                                                    const WalkItem& item, int row) {
  const std::int64_t first =
      first_chunk_slot(p.sequences, item.n, {item.batch, item.begin, item.length});
  return item.head * slots + first + row / kChunkTokens;
}

/// Finds chunks for the makers and stores what they make: the work of one warp. Blocks that walk value
/// channels of the same head take its chunks in turns, each the next that none has taken yet: so what a
/// walk waits for is always being made by a block that is there.
/// Where `kInSegments` some walk a part of a sequence: others find nothing to make of one that is cut.
template <class T, class Shape, bool kInSegments>
class OperandCourier {
  using Shared = OperandsShared<Shape::kTileK>;

 public:
  __device__ OperandCourier(const WalkParams& walk, const GlaParams& p,
                            const WalkProgress& progress, Shared& shared)
      : walk_(walk), p_(p), progress_(progress), s_(shared) {}

  __device__ __forceinline__ void run() {
    std::int64_t index = kNone;
#pragma unroll 1
    do index = store(index);
    while (index != kNone);
  }

 private:
  static constexpr std::int64_t kNone = -1;
  __device__ static bool leads() { return threadIdx.x % kWarpSize == 0; }

  /// Takes the next chunk of the item, whose step it returns, if there is one.
  __device__ __forceinline__ int take() {
    return leads() && item_ != kNoItem ? atomicAdd(&progress_.taken[s_.item.walk], 1) : 0;
  }
  /// Makes the chunk that has been taken known, or one of the block's next item, and returns its
  /// index, or that there is none.
  __device__ __forceinline__ std::int64_t announce(int step) {
    step = warp_uniform(step);
    while (item_ == kNoItem || step >= s_.item.count) {
      if (!find_item()) break;
      step = warp_uniform(take());
    }
    const auto& item = s_.item;
    auto& to = s_.chunks[found_ % 2];
    const int chunk = kInSegments ? item.chunk + step : step;
    const int chunks = kInSegments ? item.chunks : item.count;
    const int row = (walk_.reverse ? chunks - 1 - chunk : chunk) * kChunkTokens;
    const std::int64_t index = item_ == kNoItem ? kNone : item.first.index + row / kChunkTokens;
    if (leads()) {
      const std::int64_t gate_bytes = p_.channel_gate.is_f32 ? sizeof(float) : sizeof(T);
      to.place = item.first;
      to.place.index = index;
      to.place.token += row;
      to.place.rows = index == kNone ? 0 : min(item.length - row, kChunkTokens);
      to.queries = item.queries + row * p_.x.token * static_cast<std::int64_t>(sizeof(T));
      to.keys = item.keys + row * p_.y.token * static_cast<std::int64_t>(sizeof(T));
      to.gates = item.gates + row * p_.channel_gate.rows.token * gate_bytes;
      barrier_arrive(&s_.chunk_ring.full[found_ % 2]);
    }
    ++found_;
    return index;
  }
  /// Goes on to the block's next item, if there is one.
  __device__ __forceinline__ bool find_item() {
    const WalkRange range = main_walk(walk_);
    const auto items = static_cast<unsigned>(walk_.extents.sequences * walk_.extents.heads *
                                             value_tiles(walk_, Shape::kTileV) * walk_.segments);
    for (; next_item_ < items; next_item_ += gridDim.x) {
      const WalkItem item = item_at<Shape>(walk_, range, next_item_);
      if (item.is_left_out || item.count == 0) continue;
      item_ = next_item_;
      next_item_ += gridDim.x;
      if (leads()) {
        auto& to = s_.item;
        HeadChunk& first = to.first;
        first.index = chunk_index(walk_, p_.slots, item, 0);
        first.sequence = item.n;
        first.head = item.head;
        first.kv_head = item.head / p_.heads_per_kv;
        first.batch = item.batch;
        first.token = item.begin;
        first.reverse = walk_.reverse;
        to.walk = (item.segment * static_cast<int>(walk_.extents.sequences) + item.n) *
                      static_cast<int>(walk_.extents.heads) +
                  item.head;
        to.count = item.count;
        if constexpr (kInSegments) {
          to.chunk = item.first;
          to.chunks = item.chunks;
        }
        to.length = item.length;
        to.queries = first_row<T>(p_.x, first, first.head);
        to.keys = first_row<T>(p_.y, first, first.kv_head);
        to.gates = p_.channel_gate.is_f32
                       ? first_row<float>(p_.channel_gate.rows, first, first.head)
                       : first_row<T>(p_.channel_gate.rows, first, first.head);
      }
      __syncwarp();
      return true;
    }
    item_ = kNoItem;
    return false;
  }
  template <class Element>
  __device__ static const std::byte* first_row(const ConstTokenView& view, const HeadChunk& chunk,
                                               std::int64_t head) {
    return reinterpret_cast<const std::byte*>(static_cast<const Element*>(view.data) +
                                              row_offset(view, chunk.batch, chunk.token, head));
  }

  /// Stores a chunk's operands, if there is one, and says that they are there. Returns the next chunk.
  __device__ __forceinline__ std::int64_t store(std::int64_t index) {
    const int channels = own_channels(p_);
    const int panels = channels / kPanelChannels;
    unsigned char* to = workspace_panel(p_.operand_panels, index, 2 * panels);
    // Before the first chunk is made others have time for the next.
    const int announces = chunk_ == 0 ? panels - 1 : 0;
    std::int64_t next = kNone;
#pragma unroll 1
    for (int panel = 0; panel < panels; ++panel, to += 2 * kPanelBytes) {
      if (panel == announces) next = announce(take());
      if (leads() && index != kNone) {
        const int buffer = panel_ % Shared::kBuffers;
        s_.panel_ring.wait_full(panel_);
        bulk_store(to, shared_address(&s_.queries[buffer]), kPanelBytes);
        bulk_store(to + kPanelBytes, shared_address(&s_.keys[buffer]), kPanelBytes);
        bulk_commit();
        bulk_wait_read<0>();
        barrier_arrive(&s_.panel_ring.empty[buffer]);
        ++panel_;
      }
      __syncwarp();
    }
    if (leads() && index != kNone) {
      s_.score_ring.wait_full(chunk_);
      bulk_store(workspace_panel(p_.scores, index, 1), shared_address(&s_.scores), kPanelBytes);
      bulk_store(p_.total_decay + index * channels, shared_address(s_.decays),
                 channels * static_cast<int>(sizeof(float)));
      bulk_commit();
      bulk_wait_read<0>();
      barrier_arrive(&s_.score_ring.empty[0]);
      bulk_wait<0>();
      publish(&progress_.is_made[index]);
    }
    if (index != kNone) ++chunk_;
    __syncwarp();
    return next;
  }

  static constexpr unsigned kNoItem = ~0U;
  const WalkParams& walk_;
  const GlaParams& p_;
  const WalkProgress& progress_;
  Shared& s_;
  unsigned item_ = kNoItem;
  unsigned next_item_ = blockIdx.x;
  int found_ = 0;
  int panel_ = 0;  // numbers of what is stored
  int chunk_ = 0;
};

#endif

}  // namespace attune::cuda::gla::forward
