// Loading the tiles of q, k or v: the work of one warp each, which runs ahead of those who use
// them.
#pragma once

#include "cuda/chunk/ring.cuh"
#include "cuda/chunk/tensor_map.hpp"
#include "cuda/chunk/walk_items.cuh"

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

/// Loads the tiles of all chunks of the block's items; kBoxes side by side to a tile.
///
/// Rows past the end of a batch's tokens arrive as zeros. Those past the end of a packed sequence
/// are the next one's: with `clears_tails` they are zeroed too, so that not even a NaN of theirs
/// gets through. `landed` then is a barrier of this warp alone.
template <int kBoxes, int kTileV, int kSlots>
__device__ __forceinline__ void load_tiles(const WalkParams& p, int segments,
                                           const WalkOperand& operand, bool is_value,
                                           bool clears_tails, Ring<kSlots>& ring, std::byte* slots,
                                           SharedBarrier* landed) {
  constexpr int kTileBytes = kBoxes * kBoxBytes;
  const bool leads = threadIdx.x % kWarpSize == 0;
  if (leads) tensor_map_prefetch(&operand.map);
  const bool packed = p.sequences.bounds != nullptr;
  std::uint32_t landed_phase = 0;
  RingPosition<kSlots> at;
  for_each_item<kTileV>(p, segments, [&](const WalkItem& item) {
    const int x = is_value ? item.tile * kTileV : 0;
    const int head = static_cast<int>(item.head / operand.group);
    for (int step = 0; step < item.count; ++step) {
      const int row = item.row_of(step, p.reverse);
      const bool clears = clears_tails && packed && item.rows_from(row) < kChunk;
      std::byte* const tile = slots + at.slot * kTileBytes;
      SharedBarrier* const arrival = clears ? landed : &ring.full[at.slot];
      ring.wait_empty(at);
      if (leads) {
        barrier_arrive_expecting(arrival, kTileBytes);
        for (int box = 0; box < kBoxes; ++box) {
          tensor_load(shared_address(tile + box * kBoxBytes), &operand.map, arrival,
                      x + box * kBoxChannels, head, item.begin + row, item.batch);
        }
      }
      if (clears) {
        barrier_wait(landed, landed_phase);
        landed_phase ^= 1U;
        clear_rows<kBoxes>(tile, item.rows_from(row));
        async_proxy_fence();
        ring.publish(at.slot);
      }
      at.advance();
    }
  });
}

}  // namespace attune::cuda
