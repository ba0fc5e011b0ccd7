// What each segment adds to the state with time, and to its gradient against time: the walks
// without outputs. With the decay over segments, a walk then starts anywhere in a sequence. Where
// there are many segments, their starts are made of that by a second launch, element by element.
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
    const StageLoader<kD> loader(&s_.private_full);
    const int head = with_time() ? walk_.kv_head : walk_.head;
    const int left = with_time() ? walk_.key_channel : walk_.value_channel;
    const int right = with_time() ? walk_.value_channel : walk_.key_channel;
    const HeadSource sources[] = {{with_time() ? &p_.k : &p_.d_o, head, left},
                                  {with_time() ? &p_.v : &p_.q, head, right}};
    for (int n = 0; n < walk_.count; ++n) {
      const int i = s_.stage_ring.stage(n);
      s_.stage_ring.wait_empty(n);
      TokenTile<kD>* const tiles[] = {&s_.left[i], &s_.right[i]};
      loader.load(tiles, sources, &s_.stage_ring.full[i], walk_, n);
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

/// Blocks (segment but one, sequence, head and tile of channels, direction): no segment starts from
/// what the last one adds with time, or the first one against it.
template <class T, int kD>
__global__ __launch_bounds__(SegmentRoles<kD>::kThreads,
                             1) void segment_states(const __grid_constant__ BackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Role = SegmentRoles<kD>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<SegmentShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  const auto direction = static_cast<Direction>(blockIdx.y);
  const int needed = p.segments - 1;
  const std::int64_t segment = blockIdx.x % needed + (direction == Direction::kAgainstTime ? 1 : 0);
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

inline constexpr int kStartsAtOnce = 8;  // loads under way

/// Makes the starts of a sequence's segments of what they add, in its place. Blocks (group of rows
/// and words of four elements, sequence, head and tile of channels, direction), a thread a word.
template <int kD>
__global__ __launch_bounds__(kWarpgroupSize) void segment_starts(
    const __grid_constant__ BackwardParams p) {
  constexpr int kGroups = kD / kPanelChannels;
  take_over_from_previous_launch();
  const auto direction = static_cast<Direction>(blockIdx.y);
  const bool with_time = direction == Direction::kWithTime;
  constexpr unsigned kWords = kD / 8;
  const unsigned part = blockIdx.x % (kGroups * kWords);
  const auto group = static_cast<int>(part / kWords);
  const auto word = static_cast<int>(part % kWords);
  const std::int64_t first = std::int64_t{blockIdx.x / (kGroups * kWords)} * p.segments;
  const ChunkWalk walk = walk_of(p, direction, first);
  const StateMatrix<const float> matrix =
      with_time ? keys_by_values<const float>(p.initial_state, p, walk)
                : values_by_keys<const float>(p.dfinal_state, p, walk);
  const FragmentLane at;
  float x[4] = {};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = group * kPanelChannels + at.row() + e / 2 * 8;
    const int column = word * 8 + at.column() + e % 2;
    if (matrix.data != nullptr && row < matrix.rows && column < matrix.columns) {
      x[e] = matrix.data[row * matrix.row + column * matrix.column];
    }
  }
  const std::int64_t step = with_time ? 1 : -1;
  const std::int64_t begin = with_time ? first : first + p.segments - 1;
  const auto place = [&](int i) {
    return segment_words<kD>(p, direction, begin + step * i, group) + word * kWarpgroupSize;
  };
  const float* const decays = p.segment_decays + static_cast<int>(direction) * p.walks + begin;
  for (int i = 0; i < p.segments; i += kStartsAtOnce) {
    float4 added[kStartsAtOnce];
    float decay[kStartsAtOnce];
#pragma unroll
    for (int n = 0; n < kStartsAtOnce; ++n) {  // the last segment adds to none
      if (i + n >= p.segments - 1) continue;
      added[n] = *place(i + n);
      decay[n] = decays[step * (i + n)];
    }
#pragma unroll
    for (int n = 0; n < kStartsAtOnce; ++n) {
      if (i + n >= p.segments) continue;
      *place(i + n) = {x[0], x[1], x[2], x[3]};
      x[0] = fmaf(decay[n], x[0], added[n].x);
      x[1] = fmaf(decay[n], x[1], added[n].y);
      x[2] = fmaf(decay[n], x[2], added[n].z);
      x[3] = fmaf(decay[n], x[3], added[n].w);
    }
  }
}

template <class T>
void launch_segment_states(const BackwardParams& params, const BackwardShape& shape,
                           cudaStream_t stream) {
  constexpr unsigned kDirections = 2;
  const std::int64_t blocks = params.walks / params.segments * (params.segments - 1);
  with_value<kSmallTile, kTileChannels>(shape.channels, [&]<int kD>() {
    launch<segment_states<T, kD>>({.grid = dim3(static_cast<unsigned>(blocks), kDirections),
                                   .block = dim3(SegmentRoles<kD>::kThreads),
                                   .shared_bytes = sizeof(SegmentShared<kD>),
                                   .overlaps_previous = true},
                                  stream, params);
    if (!params.makes_starts()) return;
    constexpr std::int64_t kBlocks = kD / kPanelChannels * (kD / 8);  // of a state
    launch<segment_starts<kD>>(
        {.grid = dim3(static_cast<unsigned>(params.walks / params.segments * kBlocks), kDirections),
         .block = dim3(kWarpgroupSize),
         .overlaps_previous = true},
        stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
