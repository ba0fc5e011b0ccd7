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

template <class Tile>
struct SegmentShared {
  static constexpr int kStages = 4;
  TokenTile<Tile::kMost> left[kStages], right[kStages];
  ChunkGates gates[kGateStages];
  Ring<kStages> stage_ring;
  Ring<kGateStages> gate_ring;
  SharedBarrier private_full;
  ChunkWalk walk;
};

/// Of both directions: one of them may leave a warpgroup without rows.
template <class Tile>
struct SegmentRoles {
  static constexpr int kWarps = Tile::kMost / kPanelChannels;
  static constexpr int kThreads = (kWarps + 1) * kWarpgroupSize;
  static constexpr int kLoadWarp = 0;
  static constexpr int kGateWarp = 1;
};

#if ATTUNE_SM90A_CODE

template <class T, class Tile, int kRows, int kColumns>
class SegmentWalk {
 public:
  using Shared = SegmentShared<Tile>;
  using Role = SegmentRoles<Tile>;
  static constexpr int kGroups = kRows / kPanelChannels;

  __device__ SegmentWalk(const BackwardParams& p, Shared& shared, Direction direction,
                         std::int64_t index)
      : p_(p), s_(shared), walk_(shared.walk), direction_(direction), index_(index) {}

  __device__ void run() {
    if (threadIdx.x == 0) init();
    __syncthreads();  // the walk and its barriers are there
    const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
    if (group < kGroups) return state(group);
    if (group < Role::kWarps) return;
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize;
    if (warp == Role::kLoadWarp) load();
    if (warp == Role::kGateWarp) scan_gates();
  }

 private:
  __device__ bool with_time() const { return direction_ == Direction::kWithTime; }

  __device__ void init() {
    constexpr int kStateWarps = kGroups * kWarpgroupSize / kWarpSize;
    s_.walk = walk_of(p_, direction_, index_);
    s_.stage_ring.init_copied(1, kStateWarps);
    s_.gate_ring.init_published(1, kStateWarps);
    barrier_init(&s_.private_full, 1);
    barrier_init_fence();
  }

  __device__ void load() {
    const StageLoader loader(&s_.private_full);
    const int head = with_time() ? walk_.kv_head : walk_.head;
    const int first_row = with_time() ? walk_.key_channel : walk_.value_channel;
    const int first_column = with_time() ? walk_.value_channel : walk_.key_channel;
    const HeadSource rows{with_time() ? &p_.k : &p_.d_o, head, first_row};
    const HeadSource columns{with_time() ? &p_.v : &p_.q, head, first_column};
    for (int n = 0; n < walk_.count; ++n) {
      const int i = s_.stage_ring.stage(n);
      s_.stage_ring.wait_empty(n);
      loader.load(&s_.stage_ring.full[i], walk_, n, from(rows, left(i)), from(columns, right(i)));
    }
  }

  __device__ void scan_gates() {
    const float decay = gate_warp<T>(p_, walk_, s_.gates, s_.gate_ring);
    if (threadIdx.x % kWarpSize == 0) {
      p_.segment_decays[static_cast<int>(direction_) * p_.walks + index_] = decay;
    }
  }

  __device__ void state(int group) {
    float x[kColumns / 2] = {};
    for (int n = 0; n < walk_.count; ++n) add_chunk(x, group, n);
    float4* const to = segment_words<kRows, kColumns>(p_, direction_, index_, group);
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      to[i * kWarpgroupSize] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
    }
  }

  __device__ __forceinline__ void add_chunk(float (&x)[kColumns / 2], int group, int n) {
    const ChunkGates& gates = s_.gates[s_.gate_ring.stage(n)];
    const int stage = s_.stage_ring.stage(n);
    s_.gate_ring.wait_full(n);
    scale_all(x, gates.total_decay);
    wgmma_pin(x);
    s_.stage_ring.wait_full(n);
    std::uint32_t rows[4][4];
    load_transposed_scaled<T>(rows, shared_address(left(stage).bytes[group]),
                              with_time() ? gates.to_end : gates.from_start, at_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN>(x, rows[i], along_rows(shared_address(&right(stage)), i), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(x);
    s_.stage_ring.release_chunk(n);
    s_.gate_ring.release_chunk(n);
  }

  __device__ TokenTile<kRows>& left(int stage) const {
    return reinterpret_cast<TokenTile<kRows>&>(s_.left[stage]);
  }
  __device__ TokenTile<kColumns>& right(int stage) const {
    return reinterpret_cast<TokenTile<kColumns>&>(s_.right[stage]);
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

/// The number of a block's walk, or -1: there is nobody for what its segment adds.
__device__ __forceinline__ std::int64_t summed_walk(const BackwardParams& p, Direction direction) {
  const auto tiles = static_cast<unsigned>(p.tiles());
  const unsigned of_tiles = blockIdx.x / tiles;
  const bool with_time = direction == Direction::kWithTime;
  if (p.by_parts()) {
    const PartPlace place = place_of_part(p.parts, of_tiles / static_cast<unsigned>(p.heads));
    const int last = with_time ? place.segments - 1 : 0;
    const bool is_summed = place.segment < place.segments && place.segment != last;
    return is_summed ? std::int64_t{blockIdx.x} : -1;
  }
  const auto needed = static_cast<unsigned>(summed_segments(p));
  const unsigned of_head = of_tiles / needed;
  const unsigned first = with_time ? 0 : p.segments - needed;
  const unsigned segment = first + of_tiles - of_head * needed;
  if (with_time && segment + 1 == p.segments) return -1;
  return std::int64_t{of_head * p.segments + segment} * tiles + blockIdx.x - of_tiles * tiles;
}

/// Blocks (sequence, head, summed segment and tile of channels; direction), or of parts.
template <class T, class Tile>
__global__ __launch_bounds__(SegmentRoles<Tile>::kThreads,
                             1) void segment_states(const __grid_constant__ BackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<SegmentShared<Tile>*>(shared_bytes);
  take_over_from_previous_launch();
  const auto direction = static_cast<Direction>(blockIdx.y);
  const std::int64_t index = summed_walk(p, direction);
  if (index < 0) return;
  constexpr int kKeys = Tile::kKeys, kValues = Tile::kValues;
  if (kKeys == kValues || direction == Direction::kWithTime) {  // squares: one code for both
    SegmentWalk<T, Tile, kKeys, kValues>(p, shared, direction, index).run();
  } else {
    SegmentWalk<T, Tile, kValues, kKeys>(p, shared, direction, index).run();
  }
#endif
}

template <class T>
void launch_segment_sums(const BackwardParams& params, const BackwardShape& shape,
                         cudaStream_t stream) {
  constexpr unsigned kDirections = 2;
  const std::int64_t blocks =
      params.by_parts() ? params.walks : params.states * summed_segments(params);
  with_tile(shape, [&]<class Tile>() {
    launch<segment_states<T, Tile>>({.grid = dim3(static_cast<unsigned>(blocks), kDirections),
                                     .block = dim3(SegmentRoles<Tile>::kThreads),
                                     .shared_bytes = sizeof(SegmentShared<Tile>),
                                     .overlaps_previous = true},
                                    stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
