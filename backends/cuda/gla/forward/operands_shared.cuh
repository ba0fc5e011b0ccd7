// What the warps that make the walk's operands (operands.cuh) have in shared memory, and the warps that
// bring it and take it away (courier.cuh).
#pragma once

#include "cuda/gla/decays.cuh"
#include "cuda/tiles/ring.cuh"

namespace attune::cuda::gla::forward {

/// Of the makers, in blocks of so many key channels.
template <int kTileK>
struct OperandsShared {
  static constexpr int kBuffers = 2;
  TokenTile<kPanelChannels> queries[kBuffers], keys[kBuffers];  // a panel, then scaled
  /// Gates of 32 bits take twice the room, which operands of 256 channels leave none for.
  static constexpr bool kHasRoomForF32 = kTileK < 256;
  TokenTile<(kHasRoomForF32 ? 2 : 1) * kPanelChannels> gates;  // of the next panel
  TokenTile<kPanelChannels> scores;
  alignas(16) float decays[kTileK];
  float2 logs_over[kBlockWarps][kWarpSize];
  struct Chunk {
    HeadChunk place;                          // without rows: there is no other chunk
    const std::byte *queries, *keys, *gates;  // its first rows
  } chunks[2];                                // this one, and the next
  struct Item {
    HeadChunk first;  // of the sequence
    int walk;
    int count, chunk;    // chunks of the item, and its first, in the order of the walk
    int chunks, length;  // of the sequence
    const std::byte *queries, *keys, *gates;  // its first rows
  } item;                                     // which the next chunk is of
  Ring<2> chunk_ring;
  Ring<kBuffers> panel_ring;  // of queries and keys that are stored
  Ring<1> score_ring;         // and of decays

  __device__ void init_rings() {
    chunk_ring.init_copied(1, 1);
    panel_ring.init_published(kBlockWarps, 1);
    score_ring.init_published(kBlockWarps, 1);
  }
};

}  // namespace attune::cuda::gla::forward
