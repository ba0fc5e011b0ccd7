// Loading the tiles of q, k or v: the work of one warp each, which runs ahead of those who use
// them.
#pragma once

#include "cuda/chunk_wgmma/ring.cuh"
#include "cuda/chunk_wgmma/tensor_map.hpp"
#include "cuda/chunk_wgmma/walk_items.cuh"

namespace attune::cuda {

inline constexpr int kRowBytes = 128;                 // of a box: kBoxChannels of 16 bits
inline constexpr int kBoxBytes = kChunk * kRowBytes;  // a multiple of 1024, as the swizzle needs
static_assert(kRowBytes == 2 * kBoxChannels);

/// Zeroes the rows of a tile from `rows` on.
template <int kBoxes>
__device__ __forceinline__ void clear_rows(std::byte* tile, int rows) {
  constexpr int kPieces = kRowBytes / sizeof(uint4);
  const int first = rows * kPieces + static_cast<int>(threadIdx.x) % kWarpSize;
  for (int box = 0; box < kBoxes; ++box) {
    auto* const pieces = reinterpret_cast<uint4*>(tile + box * kBoxBytes);
    for (int i = first; i < kChunk * kPieces; i += kWarpSize) pieces[i] = uint4{};
  }
}

/// One operand's tiles, kBoxes side by side to a tile, as a warp loads them, at most kUnderWay at
/// once.
///
/// Rows past the end of a batch's tokens arrive as zeros. Those past the end of a packed sequence
/// are the next one's: where `landed` is a barrier (of this warp alone) they are zeroed too, so
/// that not even a NaN of theirs gets through.
template <int kBoxes, int kSlots, int kUnderWay = kSlots>
class TileLoader {
 public:
  __device__ __forceinline__ TileLoader(const WalkParams& p, const WalkOperand& operand,
                                        Ring<kSlots>& ring, std::byte* slots, SharedBarrier* landed)
      : operand_(operand),
        ring_(ring),
        slots_(slots),
        landed_(p.sequences.bounds != nullptr ? landed : nullptr) {
    if (leads()) tensor_map_prefetch(&operand.map);
  }

  /// Loads the chunk at `row` of the item, channels from x on.
  __device__ __forceinline__ void load(const WalkItem& item, int row, int x) {
    std::byte* const tile = slots_ + at_.slot * kTileBytes;
    const bool clears = landed_ != nullptr && item.rows_from(row) < kChunk;
    SharedBarrier* const arrival = clears ? landed_ : &ring_.full[at_.slot];
    ring_.wait_empty(at_);
    // Before the first tiles there are none to wait for: that phase counts as ended.
    if constexpr (kUnderWay < kSlots) ring_.wait_full(at_.before(kUnderWay));
    if (leads()) {
      const int head = static_cast<int>(item.head / operand_.group);
      barrier_arrive_expecting(arrival, kTileBytes);
      for (int box = 0; box < kBoxes; ++box) {
        tensor_load(shared_address(tile + box * kBoxBytes), &operand_.map, arrival,
                    x + box * kBoxChannels, head, item.begin + row, item.batch);
      }
    }
    if (clears) clear_tail(tile, item.rows_from(row));
    at_.advance();
  }

 private:
  static constexpr int kTileBytes = kBoxes * kBoxBytes;
  __device__ __forceinline__ static bool leads() { return threadIdx.x % kWarpSize == 0; }

  __device__ __forceinline__ void clear_tail(std::byte* tile, int rows) {
    barrier_wait(landed_, landed_phase_);
    landed_phase_ ^= 1U;
    clear_rows<kBoxes>(tile, rows);
    async_proxy_fence();
    ring_.publish_copied(at_.slot);
  }

  const WalkOperand& operand_;
  Ring<kSlots>& ring_;
  std::byte* slots_;
  SharedBarrier* landed_;
  std::uint32_t landed_phase_ = 0;
  RingPosition<kSlots> at_;
};

/// Calls load(item, row) for all chunks of the block's items.
template <int kTileV, class Load>
__device__ __forceinline__ void for_each_chunk(const WalkParams& p, WalkRange range, Load&& load) {
  for_each_item<kTileV>(p, range, [&](const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) load(item, item.row_of(step, p.reverse));
  });
}

}  // namespace attune::cuda
