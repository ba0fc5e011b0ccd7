// What a walk over states has in shared memory, and the warp that loads its chunks: tiles of the workspace,
// and of tensors (state_walk.cuh).
#pragma once

#include "cuda/chunks/tile_copies.cuh"
#include "cuda/gla/state_block.cuh"
#include "cuda/tiles/ring.cuh"

namespace attune::cuda::gla {

template <int kD>
struct StateShared {
  static constexpr int kStages = 3;
  static constexpr int kFlows = 2;
  TokenTile<kD> left[kStages], right[kStages], read[kStages];
  TokenTile<kD> flow[kFlows];
  alignas(16) float own_decay[kStages][kD];
  alignas(16) float other_decay[kStages][kD];
  Ring<kStages> stage_ring;
  Ring<kFlows> flow_ring;
  SharedBarrier private_full;
  ChunkWalk walk;
};

template <int kD>
struct StateRoles {
  static constexpr int kGroups = kD / kPanelChannels;
  static constexpr int kStateWarps = kGroups * kWarpgroupSize / kWarpSize;
  static constexpr int kLoader = kStateWarps;      // the warp that loads chunks
  static constexpr int kWriter = kStateWarps + 1;  // the one that stores their flows
  static constexpr int kThreads = (kStateWarps + 2) * kWarpSize;
};

#if ATTUNE_SM90A_CODE

/// The number, of [heads, slots], of the chunk that a walk visits n-th.
__device__ __forceinline__ std::int64_t chunk_index(const GlaParams& p, const ChunkWalk& walk,
                                                    int n) {
  const std::int64_t first = walk.first_slot();
  return walk.head * p.slots + first + walk.chunk(n);
}

/// The loads of a walk's chunks, by one warp.
template <int kD, Gated kGated, Direction kDirection, Leaves kLeaves>
class StateLoads {
 public:
  using Shared = StateShared<kD>;
  using Block = StateBlock<kD, kGated, kDirection>;

  __device__ StateLoads(const GlaParams& p, Shared& shared, const Block& block)
      : p_(p), s_(shared), walk_(shared.walk), block_(block) {}

  /// All chunks of the walk, as stages get free.
  __device__ void load() {
    for (int n = 0; n < walk_.count; ++n) {
      s_.stage_ring.wait_empty(n);
      load_stage(s_.stage_ring.stage(n), n);
    }
  }

 private:
  static constexpr bool kWithTime = kDirection == Direction::kWithTime;
  static constexpr bool kBoth = kGated == Gated::kBoth;
  static constexpr bool kOwnRows = kGated != Gated::kColumns;
  static constexpr bool kFlows = kLeaves == Leaves::kFlows;

  /// Tiles of the workspace, and decays; and tiles of tensors, rows of another sequence cleared.
  __device__ void load_stage(int stage, int n) {
    SharedBarrier* const full = &s_.stage_ring.full[stage];
    if (threadIdx.x % kWarpSize == 0) load_own_tiles(stage, chunk_index(p_, walk_, n), full);
    if constexpr (kBoth) return;
    const StageLoader loader(&s_.private_full);
    const int channel = block_.other_tile() * kD;
    const HeadSource u{&p_.u_map, walk_.head, channel};
    const HeadSource z{&p_.z_map, walk_.kv_head, channel};
    const HeadSource written = kWithTime ? z : u;
    if constexpr (!kOwnRows) {
      loader.load(full, walk_, n, from(written, s_.left[stage]));
    } else if constexpr (kFlows) {
      const HeadSource read = kWithTime ? u : z;
      loader.load(full, walk_, n, from(written, s_.right[stage]), from(read, s_.read[stage]));
    } else {
      loader.load(full, walk_, n, from(written, s_.right[stage]));
    }
  }
  __device__ void load_own_tiles(int stage, std::int64_t index, SharedBarrier* full) {
    constexpr int kOwn = kOwnRows ? 1 : 2;
    constexpr int kOthers = kBoth ? (kFlows ? 2 : 1) : 0;
    constexpr int kDecays = kBoth ? 2 : 1;
    const int own = block_.own_tile() * kD;
    const int other = block_.other_tile() * kD;
    barrier_arrive_expecting(
        full, (kOwn + kOthers) * sizeof(TokenTile<kD>) + kDecays * sizeof(s_.own_decay[0]));
    load_decays(s_.own_decay[stage], p_.total_decay + index * own_channels(p_) + own, full);
    const auto load_own = [&](TokenTile<kD>& tile, int tensor) {
      load_chunk_tile<kD>(shared_address(&tile), p_.own_rows, tensor, index, own, full);
    };
    // What the state takes in, and what reads it.
    constexpr int kWritten = kWithTime ? GlaParams::kYToEnd : GlaParams::kXFromStart;
    constexpr int kRead = kWithTime ? GlaParams::kXFromStart : GlaParams::kYToEnd;
    if constexpr (kOwnRows) {
      load_own(s_.left[stage], kWritten);
    } else {
      load_own(s_.right[stage], kWritten);
      load_own(s_.read[stage], kRead);
    }
    if constexpr (kBoth) {
      load_decays(s_.other_decay[stage], p_.other_total_decay + index * other_channels(p_) + other,
                  full);
      const auto load_other = [&](TokenTile<kD>& tile, int tensor) {
        load_chunk_tile<kD>(shared_address(&tile), p_.other_rows, tensor, index, other, full);
      };
      load_other(s_.right[stage], kWritten);
      if constexpr (kFlows) load_other(s_.read[stage], kRead);
    }
  }
  __device__ static void load_decays(float (&to)[kD], const float* from, SharedBarrier* full) {
    bulk_load(shared_address(to), from, sizeof(to), full);
  }

  const GlaParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  const Block block_;
};

#endif

}  // namespace attune::cuda::gla
