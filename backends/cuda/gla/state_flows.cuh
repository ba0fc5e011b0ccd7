// Where the flows of a walk over states go, a tensor of the workspace for each tile of what is summed
// over, and the warp that stores them (state_walk.cuh).
#pragma once

#include "cuda/gla/flow_arrivals.cuh"
#include "cuda/gla/state_loads.cuh"

namespace attune::cuda::gla {

#if ATTUNE_SM90A_CODE

template <class T, int kD, Gated kGated, Direction kDirection>
class StateFlows {
 public:
  using Shared = StateShared<kD>;
  using Block = StateBlock<kD, kGated, kDirection>;

  __device__ StateFlows(const GlaParams& p, Shared& shared, const Block& block)
      : p_(p), s_(shared), walk_(shared.walk), block_(block) {}

  /// The channel of the first of a warpgroup's rows, and whether there is one.
  __device__ int first_row(int group) const {
    return block_.row_tile() * kD + group * kPanelChannels;
  }
  __device__ bool has_rows(int group) const {
    return first_row(group) < (kOwnRows ? p_.own : p_.other);
  }
  /// Of the walk's warpgroups, those that have rows.
  __device__ int groups_with_rows() const {
    return StateRoles<kD>::kGroups == 1 || !has_rows(1) ? 1 : StateRoles<kD>::kGroups;
  }

  /// A warpgroup hands over its part of a chunk's.
  __device__ __forceinline__ void hand_over(const float (&flow)[32], const FragmentLane& at,
                                            int group, int n) const {
    s_.flow_ring.wait_empty(n);
    store_transposed<T>(shared_address(panel(group, n)), flow, at);
    async_proxy_fence();
    s_.flow_ring.publish_chunk(n);
  }

  /// One warp: stores all of the walk's, as they are there, and says so. What the stores take is known
  /// ahead, as the last chunk waits for them, and for their instructions.
  __device__ void store() const {
    const bool leads = threadIdx.x % kWarpSize == 0;
    const CUtensorMap* const map = &rows().map;
    const int tensor = this->tensor();
    const int channel = first_row(0);
    const bool has_second = groups_with_rows() > 1;
    const int step = row_step();
    int row = first_chunk() * kChunkTokens;
    int published = 0;
#pragma unroll 1
    for (int n = 0; n < walk_.count; ++n, row += step) {
      s_.flow_ring.wait_full(n);
      if (leads) {
        const std::uint32_t from = shared_address(panel(0, n));
        tensor_store(map, from, channel, 0, row, tensor);
        if (has_second) {
          tensor_store(map, from + kPanelBytes, channel + kPanelChannels, 0, row, tensor);
        }
        bulk_commit();
        bulk_wait_read<0>();
      }
      s_.flow_ring.release_chunk(n);
      if (kIsLast && leads && n - published == kPublishedAtOnce) {
        bulk_wait<1>();
        publish(published, n);
        published = n;
      }
    }
    if (!leads) return;
    bulk_wait<0>();
    if constexpr (kPublishes) publish(published, walk_.count);
  }

  /// All threads: what a walk over one chunk leaves of which all flows are zeros, unless nobody asks
  /// for that. put_product(group) is called for warpgroups that have rows.
  template <class F>
  __device__ void leave_zeros(F&& put_product) const {
    if (walk_.count == 0 || p_.has_no_states()) return;
    const auto thread = static_cast<int>(threadIdx.x);
    const int group = thread / kWarpgroupSize;
    if (group < StateRoles<kD>::kGroups && has_rows(group)) {
      put_zeros(group, thread % kWarpgroupSize);
      put_product(group);
    }
    if constexpr (!kPublishes) return;
    __syncthreads();  // all zeros are there
    if (thread == 0) publish(0, 1);
  }

 private:
  static constexpr int kPiece = static_cast<int>(sizeof(uint4) / sizeof(T));  // channels
  static constexpr int kPanelPieces = kPanelChannels / kPiece;                // of a row
  static constexpr bool kWithTime = kDirection == Direction::kWithTime;
  static constexpr bool kOwnRows = kGated != Gated::kColumns;
  /// Whether somebody waits for the flows of a chunk.
  static constexpr bool kPublishes = kGated != Gated::kBoth;
  /// Whether it is of the launch that the blocks which wait are beside: others say so once, at the end.
  static constexpr bool kIsLast = kGated == Gated::kRows && !kWithTime;
  /// Of a fence, which takes longer than a chunk may wait for it.
  static constexpr int kPublishedAtOnce = 8;

  /// One thread, which knows that flows of chunks from `first` on are in memory: says so.
  __device__ void publish(int first, int end) const {
    if (p_.flow_arrivals == nullptr) return;
    __threadfence();
    unsigned* const arrivals = p_.flow_arrivals + first_chunk();
    const int step = row_step() / kChunkTokens;
#pragma unroll 1
    for (int n = first; n < end; ++n) atomicAdd(arrivals + n * step, 1U);
  }

  /// The number of the walk's first chunk, and how far rows of its chunks are apart.
  __device__ int first_chunk() const { return static_cast<int>(chunk_index(p_, walk_, 0)); }
  __device__ int row_step() const {
    return walk_.reverse ? -walk_.step * kChunkTokens : walk_.step * kChunkTokens;
  }
  __device__ unsigned char* panel(int group, int n) const {
    return s_.flow[s_.flow_ring.stage(n)].bytes[group];
  }
  __device__ const ChunkRows& rows() const { return kOwnRows ? p_.own_rows : p_.other_rows; }
  __device__ int tensor() const {
    const int tile = block_.column_tile();
    if constexpr (kOwnRows) {
      return kWithTime ? p_.x_flow(tile) : p_.y_flow(tile);
    } else {
      return kWithTime ? p_.u_flow(tile) : p_.z_flow(tile);
    }
  }

  __device__ void put_zeros(int group, int thread) const {
    const int channel = first_row(group);
    const int pieces = min(kPanelChannels, rows().channels - channel) / kPiece;
    for (int i = thread; i < kChunkTokens * kPanelPieces; i += kWarpgroupSize) {
      if (i % kPanelPieces >= pieces) continue;
      auto* const to = chunk_row<T>(rows(), tensor(), chunk_index(p_, walk_, 0), i / kPanelPieces,
                                    channel + i % kPanelPieces * kPiece);
      *reinterpret_cast<uint4*>(to) = {};
    }
  }

  const GlaParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  const Block block_;
};

#endif

}  // namespace attune::cuda::gla
