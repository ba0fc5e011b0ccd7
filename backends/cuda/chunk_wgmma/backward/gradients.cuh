// How the gradients of a block's chunks get to memory. Where two tiles make parts of a head's gradient, the
// first one's block stores its part of a chunk and says so; the second one's adds its own, which is
// mostly in the L2 cache then. A block waits for one of a lower number, which begins before it
// (docs/adr/0037-two-tiles-add-up-a-gradient.md).
#pragma once

#include "cuda/chunk_wgmma/backward/state.cuh"
#include "cuda/tiles/publication.cuh"

namespace attune::cuda::chunk_wgmma::backward {

/// Where a block's part of a gradient goes, in shared memory.
struct GradientPlace {
  int head;               // of the tensor; of partial sums, where parts are summed up later
  unsigned* own;          // flags of this block's chunks by their order, where another adds to them
  const unsigned* first;  // of the chunks that this block adds to

  /// `partial`: the head of partial sums. `further`: owners between the first tile and the second.
  __device__ void init(const BackwardParams& p, const ChunkWalk& walk, unsigned* stored,
                       int partial, bool is_second, int further) {
    const auto flags_of = [&](int owner) {
      return stored + (owner * p.slots + walk.first_slot()) * BackwardParams::kPanels;
    };
    own = stored == nullptr || is_second ? nullptr : flags_of(walk.owner);
    first = stored == nullptr || !is_second ? nullptr : flags_of(walk.owner - further);
    head = stored == nullptr ? partial : walk.head;
  }
  __device__ void init_keys(const BackwardParams& p, const ChunkWalk& walk, unsigned* stored) {
    init(p, walk, stored, walk.key_partial, walk.value_channel > 0, 1);
  }
  __device__ void init_values(const BackwardParams& p, const ChunkWalk& walk, unsigned* stored) {
    init(p, walk, stored, walk.value_partial, walk.key_channel > 0, p.value_tiles);
  }
};

#if ATTUNE_SM90A_CODE

__device__ __forceinline__ int flag_of(const ChunkWalk& walk, int panel, int n) {
  return walk.order_of(n) * BackwardParams::kPanels + panel;
}

// ---- by the warpgroup that makes a panel. `adds`: two parts are added up.

/// The thread that writes: waits until the panel of chunk n - 1 may be overwritten.
__device__ __forceinline__ void wait_for_panel(const GradientPlace& place, bool adds,
                                               const ChunkWalk& walk, int panel, int n) {
  if (!adds || place.own == nullptr) return bulk_wait_read<0>();
  bulk_wait<0>();
  if (n > 0) publish(place.own + flag_of(walk, panel, n - 1));
}
/// The same at the end of the walk, until the last one is in memory.
__device__ __forceinline__ void finish_panel(const GradientPlace& place, bool adds,
                                             const ChunkWalk& walk, int panel) {
  bulk_wait<0>();
  if (adds && place.own != nullptr && walk.count > 0) {
    publish(place.own + flag_of(walk, panel, walk.count - 1));
  }
}
/// All of the warpgroup, which have filled the panel, fenced it and synchronised.
template <class T>
__device__ __forceinline__ void write_part(const GradientPlace& place, bool adds,
                                           const PanelTarget& to, const ChunkWalk& walk,
                                           const unsigned char* bytes, int panel, int n) {
  if (!adds || place.first == nullptr) return write_panel<T>(to, bytes, walk, n);
  if (threadIdx.x % kWarpgroupSize != 0) return;
  wait_for_publication(place.first + flag_of(walk, panel, n));
  tensor_add(&to.map, shared_address(bytes), to.channel, to.head, walk.token(n), walk.batch);
  bulk_commit();
}

// ---- by a warp that does nothing else, for warpgroups that have no registers for it

/// Writes the tiles of a gradient of which two parts are added up.
template <int kD>
class TileWriter {
 public:
  __device__ TileWriter(const GradientPlace& place, const CUtensorMap& map, const ChunkWalk& walk,
                        int channel, TokenTile<kD>& tile, Ring<1>& ring)
      : place_(place), map_(map), walk_(walk), channel_(channel), tile_(tile), ring_(ring) {}

  /// Writes that of chunk n when it is there, and hands it back.
  __device__ __forceinline__ void write(int n) {
    ring_.wait_full(n);
    if (leads()) {
      if (place_.first != nullptr) wait_for_publication(place_.first + flag_of(walk_, 0, n));
#pragma unroll 1
      for (int panel = 0; panel < kD / kPanelChannels; ++panel) {
        const std::uint32_t from = shared_address(tile_.bytes[panel]);
        const int x = channel_ + panel * kPanelChannels;
        if (place_.first != nullptr) {
          tensor_add(&map_, from, x, place_.head, walk_.token(n), walk_.batch);
        } else {
          tensor_store(&map_, from, x, place_.head, walk_.token(n), walk_.batch);
        }
      }
      bulk_commit();
      bulk_wait_read<0>();
    }
    ring_.release_chunk(n);
  }
  /// The thread that writes, which has waited for that: says that chunk n's is in memory.
  __device__ __forceinline__ void publish_chunk(int n) const {
    if (place_.own != nullptr) publish(place_.own + flag_of(walk_, 0, n));
  }

 private:
  __device__ static bool leads() { return threadIdx.x % kWarpSize == 0; }

  const GradientPlace& place_;
  const CUtensorMap& map_;
  const ChunkWalk& walk_;
  int channel_;
  TokenTile<kD>& tile_;
  Ring<1>& ring_;
};

#endif

}  // namespace attune::cuda::chunk_wgmma::backward
