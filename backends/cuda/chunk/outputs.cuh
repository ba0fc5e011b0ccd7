// From accumulators of O^T to rows of o.
#pragma once

#include "cuda/chunk/state.cuh"
#include "cuda/chunk/walk_shared.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda {

/// Waits for all threads of a state warpgroup. Barrier ids are constants, and 0 is __syncthreads'.
__device__ __forceinline__ void sync_state_warpgroup(int which) {
  if (which == 0) {
    named_barrier_sync<1>(kWarpgroupSize);
  } else {
    named_barrier_sync<2>(kWarpgroupSize);
  }
}

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

/// Copies the first rows of a box to the memory of o, by a warpgroup. `channels`: of the box, that
/// exist.
template <class T>
__device__ __forceinline__ void copy_rows(const std::byte* box, T* to, std::int64_t token_stride,
                                          int rows, std::int64_t channels, const Lane& me) {
  constexpr int kPieceElements = sizeof(uint4) / sizeof(T);
  constexpr int kPieces = kBoxChannels / kPieceElements;
  for (int i = me.thread; i < rows * kPieces; i += kWarpgroupSize) {
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

/// Writes outputs through the slots that v came in, and hands these back once they have been read.
template <class T, class Shape>
class OutputWriter {
 public:
  /// The outputs of the chunk at `row` of the item, which store_outputs() has left in `slot`.
  __device__ __forceinline__ void write(const WalkParams& p, WalkShared<Shape>& shared,
                                        const WalkItem& item, const Lane& me, int row, int slot,
                                        int warpgroup) {
    release(shared, me);
    std::byte* const box = shared.v[slot] + warpgroup * kBoxBytes;
    sync_state_warpgroup(warpgroup);  // before the box is read as a whole
    const int x = item.tile * Shape::kTileV + warpgroup * kStateRows;
    const int rows = item.rows_from(row);
    if (rows < kChunk && p.sequences.bounds != nullptr) {
      const TokenView& o = p.o_rows;
      T* const to =
          static_cast<T*>(o.data) + row_offset(o, item.batch, item.begin + row, item.head) + x;
      copy_rows<T>(box, to, o.token, rows, p.extents.V - x, me);
      sync_state_warpgroup(warpgroup);  // before the slot is handed back
    } else if (me.thread == 0) {
      tensor_store(&p.o, shared_address(box), x, item.head, item.begin + row, item.batch);
      bulk_commit();
    }
    held_ = slot;
  }

  /// Hands back the slot of the last outputs. Called a chunk later, when the copy has long read it.
  __device__ __forceinline__ void release(WalkShared<Shape>& shared, const Lane& me) {
    if (me.thread != 0 || held_ < 0) return;
    bulk_wait_read<0>();
    barrier_arrive(&shared.v_ring.empty[held_]);
    held_ = -1;
  }

 private:
  int held_ = -1;
};

}  // namespace attune::cuda

#endif
