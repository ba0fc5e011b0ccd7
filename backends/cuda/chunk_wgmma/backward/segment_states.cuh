// What each segment adds to the state with time, and to its gradient against time: the walks
// without outputs. With the decay over segments, a walk then starts anywhere in a sequence
// (segment_starts.cuh).
//
//   S   <- e^{bl} S + sum_j e^{bl - b_j} k_j v_j^T          with time
//   D^T <- e^{bl} D^T + scale sum_i e^{b_i} do_i q_i^T      against time
#pragma once

#include "cuda/chunk_wgmma/backward/gates.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma::backward {

template <int kD>
struct SegmentShared {
  static constexpr int kStages = 4;
  TokenTile<kD> left[kStages], right[kStages];
  ChunkGates gates[kGateStages];
  Ring<kStages> stage_ring;
  Ring<kGateStages> gate_ring;
  SharedBarrier private_full;
  ChunkWalk walk;
};

template <int kD>
struct SegmentRoles {
  static constexpr int kStateGroups = kD / kPanelChannels;
  static constexpr int kWarps = kStateGroups;
  static constexpr int kThreads = (kStateGroups + 1) * kWarpgroupSize;
  static constexpr int kStateWarps = kStateGroups * kWarpgroupSize / kWarpSize;
  static constexpr int kLoadWarp = 0;
  static constexpr int kGateWarp = 1;
};

#if ATTUNE_SM90A_CODE

template <class T, int kD>
class SegmentWalk {
 public:
  using Shared = SegmentShared<kD>;

  __device__ SegmentWalk(const BackwardParams& p, Shared& shared, Direction direction,
                         std::int64_t index)
      : p_(p), s_(shared), walk_(shared.walk), direction_(direction), index_(index) {}

  __device__ void init() {
    s_.walk = walk_of(p_, direction_, index_);
    s_.stage_ring.init_copied(1, SegmentRoles<kD>::kStateWarps);
    s_.gate_ring.init_published(1, SegmentRoles<kD>::kStateWarps);
    barrier_init(&s_.private_full, 1);
    barrier_init_fence();
  }

  __device__ void load() {
    const StageLoader loader(&s_.private_full);
    const int head = with_time() ? walk_.kv_head : walk_.head;
    const int left = with_time() ? walk_.key_channel : walk_.value_channel;
    const int right = with_time() ? walk_.value_channel : walk_.key_channel;
    const HeadSource left_side{with_time() ? &p_.k : &p_.d_o, head, left};
    const HeadSource right_side{with_time() ? &p_.v : &p_.q, head, right};
    for (int n = 0; n < walk_.count; ++n) {
      const int i = s_.stage_ring.stage(n);
      s_.stage_ring.wait_empty(n);
      loader.load(&s_.stage_ring.full[i], walk_, n, from(left_side, s_.left[i]),
                  from(right_side, s_.right[i]));
    }
  }

  __device__ void scan_gates() {
    const float decay = gate_warp<T>(p_, walk_, s_.gates, s_.gate_ring);
    if (threadIdx.x % kWarpSize == 0) {
      p_.segment_decays[static_cast<int>(direction_) * p_.walks + index_] = decay;
    }
  }

  __device__ void state(int group) {
    float x[kD / 2] = {};
    for (int n = 0; n < walk_.count; ++n) add_chunk(x, group, n);
    float4* const to = segment_words<kD>(p_, direction_, index_, group);
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      to[i * kWarpgroupSize] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
    }
  }

 private:
  __device__ bool with_time() const { return direction_ == Direction::kWithTime; }

  __device__ __forceinline__ void add_chunk(float (&x)[kD / 2], int group, int n) {
    const ChunkGates& gates = s_.gates[s_.gate_ring.stage(n)];
    const int stage = s_.stage_ring.stage(n);
    s_.gate_ring.wait_full(n);
    scale_all(x, gates.total_decay);
    wgmma_pin(x);
    s_.stage_ring.wait_full(n);
    std::uint32_t left[4][4];
    load_transposed_scaled<T>(left, shared_address(s_.left[stage].bytes[group]),
                              with_time() ? gates.to_end : gates.from_start, at_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN>(x, left[i], along_rows(shared_address(&s_.right[stage]), i), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(x);
    s_.stage_ring.release_chunk(n);
    s_.gate_ring.release_chunk(n);
  }

  const BackwardParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  const Direction direction_;
  const std::int64_t index_;
  const FragmentLane at_;
};

#endif

/// Segments of a sequence that are summed up in a direction: but one, as no segment starts from what
/// the last one adds with time, or the first one against it. Where summaries are wanted, what the
/// first one adds is, too.
__host__ __device__ constexpr int summed_segments(const BackwardParams& p) {
  return p.sums_all ? p.segments : p.segments - 1;
}

/// Blocks (summed segment, sequence, head and tile of channels, direction).
template <class T, int kD>
__global__ __launch_bounds__(SegmentRoles<kD>::kThreads,
                             1) void segment_states(const __grid_constant__ BackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Role = SegmentRoles<kD>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<SegmentShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  const auto direction = static_cast<Direction>(blockIdx.y);
  const int needed = summed_segments(p);
  const int first = direction == Direction::kAgainstTime ? p.segments - needed : 0;
  const std::int64_t segment = first + blockIdx.x % needed;
  if (direction == Direction::kWithTime && segment == p.segments - 1) return;
  SegmentWalk<T, kD> block(p, shared, direction, blockIdx.x / needed * p.segments + segment);
  if (threadIdx.x == 0) block.init();
  __syncthreads();  // the walk and its barriers are there

  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
  if (group < Role::kWarps) {
    block.state(group);
  } else {
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize;
    if (warp == Role::kLoadWarp) block.load();
    if (warp == Role::kGateWarp) block.scan_gates();
  }
#endif
}

template <class T>
void launch_segment_sums(const BackwardParams& params, const BackwardShape& shape,
                         cudaStream_t stream) {
  constexpr unsigned kDirections = 2;
  const std::int64_t blocks = params.walks / params.segments * summed_segments(params);
  with_value<kSmallTile, kTileChannels>(shape.channels(), [&]<int kD>() {
    launch<segment_states<T, kD>>({.grid = dim3(static_cast<unsigned>(blocks), kDirections),
                                   .block = dim3(SegmentRoles<kD>::kThreads),
                                   .shared_bytes = sizeof(SegmentShared<kD>),
                                   .overlaps_previous = true},
                                  stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
