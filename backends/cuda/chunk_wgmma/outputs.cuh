// From accumulators of O^T to rows of o.
#pragma once

#include "cuda/chunk_wgmma/state.cuh"
#include "cuda/chunk_wgmma/walk_shared.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda {

/// Rounds the outputs of a chunk into a box, one row for each token: 64 value channels x 64 tokens
/// over a warpgroup. A warp writes where it alone has read v.
template <class T>
__device__ __forceinline__ void store_outputs(const float (&o)[kChunk / 2], std::uint32_t box,
                                              const Lane& me) {
  const int row = me.lane / 16 * 8 + me.lane % 8;
  const int byte = (me.warp * 16 + me.lane / 8 % 2 * 8) * 2;
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    const float* const pairs = &o[4 * n];
    store_matrices_transposed(box + swizzled(8 * n + row, byte), pack<T>(pairs[0], pairs[1]),
                              pack<T>(pairs[2], pairs[3]), pack<T>(pairs[4], pairs[5]),
                              pack<T>(pairs[6], pairs[7]));
  }
  async_proxy_fence();
}

/// Copies the first rows of a box to the memory of o, by a warp. `channels`: of the box, that
/// exist.
template <class T>
__device__ __forceinline__ void copy_rows(const std::byte* box, T* to, std::int64_t token_stride,
                                          int rows, std::int64_t channels) {
  constexpr int kPieceElements = sizeof(uint4) / sizeof(T);
  constexpr int kPieces = kBoxChannels / kPieceElements;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < rows * kPieces; i += kWarpSize) {
    const int row = i / kPieces;
    const int channel = i % kPieces * kPieceElements;
    const std::byte* const piece = box + swizzled(row, channel * sizeof(T));
    T* const at = to + row * token_stride + channel;
    if (channel + kPieceElements <= channels) {
      *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(piece);
    } else {
      for (int e = 0; channel + e < channels; ++e) at[e] = reinterpret_cast<const T*>(piece)[e];
    }
  }
}

/// Queues the copies of one chunk's outputs, whose boxes begin at `tile`. A box would reach beyond
/// the end of a packed sequence: its last rows are copied by hand.
template <class T, class Shape>
__device__ __forceinline__ void store_tile(const WalkParams& p, const WalkItem& item, int row,
                                           const std::byte* tile) {
  const int rows = item.rows_from(row);
  const bool by_hand = rows < kChunk && p.sequences.bounds != nullptr;
  const TokenView& o = p.o_rows;
  for (int box = 0; box < Shape::kBoxesV; ++box) {
    const std::byte* const from = tile + box * kBoxBytes;
    const int x = item.tile * Shape::kTileV + box * kBoxChannels;
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

/// The work of the warp that stores the outputs of all chunks, from the slots that v came in, and
/// hands these back once they have been read.
template <class T, class Shape>
__device__ __forceinline__ void store_tiles(const WalkParams& p, WalkShared<Shape>& shared) {
  RingPosition<Shape::kValueSlots> at;
  int held = -1;
  for_each_item<Shape::kTileV>(p, whole_walk(p), [&](const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) {
      barrier_wait(&shared.output_full[at.slot], at.phase);
      store_tile<T, Shape>(p, item, item.row_of(step, p.reverse), shared.v[at.slot]);
      bulk_wait_read<1>();
      if (held >= 0) shared.v_ring.release(held);
      held = at.slot;
      at.advance();
    }
  });
  bulk_wait_read<0>();
}

}  // namespace attune::cuda

#endif
