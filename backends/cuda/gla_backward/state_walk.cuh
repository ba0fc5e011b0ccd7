// What goes through the states: a walk over the chunks of a sequence and head, with its state in
// fp32 accumulators, for each of the terms of S and D in params.hpp.
//
//   flow_t = X r_t                        r: u, z, L y or E x, by token
//   X     <- decay X + sum_t l_t m_t^T    l along the state's rows, m along its columns
//
// A warpgroup holds 64 rows. The rows are channels of the gated side (S, D), or of the other one
// (S^T, D^T). The first two of four walks are of S and D and leave and meet S where it gets through
// a chunk, for the gradients of the gates.
#pragma once

#include "cuda/chunk_backward/roles.cuh"
#include "cuda/chunk_backward/start_state.cuh"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/gla_backward/place.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

using namespace chunk_backward;  // its tiles, rings, walks and matrices

/// Below it, what gets through a chunk is less than the rounding of what does not.
inline constexpr float kVanishingDecay = 0x1p-12F;

template <int kD>
struct StateShared {
  static constexpr int kStages = 3;
  Tile<kD> left[kStages], right[kStages], read[kStages];
  Tile<kD> flow;
  alignas(16) float decay[kStages][kD];
  Ring<kStages> stage_ring;
  SharedBarrier private_full;
  Walk walk;
};

template <int kD>
struct StateRoles {
  static constexpr int kGroups = kD / kPanelChannels;
  static constexpr int kStateWarps = kGroups * kWarpgroupSize / kWarpSize;
  static constexpr int kThreads = kGroups * kWarpgroupSize + kWarpSize;
};

__device__ __forceinline__ Walk walk_of(const GlaBackwardParams& p, Direction direction,
                                        std::int64_t index) {
  const SequenceSpan span = span_of(p.sequences, index / p.heads);
  Walk walk;
  walk.batch = static_cast<int>(span.batch);
  walk.begin = static_cast<int>(span.begin);
  walk.length = static_cast<int>(span.length);
  walk.sequence = static_cast<int>(index / p.heads);
  walk.head = static_cast<int>(index % p.heads);
  walk.kv_head = walk.head / p.group;
  walk.packed = p.sequences.bounds != nullptr;
  walk.reverse = p.reverse;
  walk.chunks = (walk.length + kChunkTokens - 1) / kChunkTokens;
  walk.count = walk.chunks;
  walk.step = direction == Direction::kWithTime ? 1 : -1;
  walk.order = direction == Direction::kWithTime ? 0 : walk.chunks - 1;
  return walk;
}

#if ATTUNE_SM90A_CODE

template <class T, int kD, bool kGatedRows, Direction kDirection>
class StateWalk {
 public:
  using Role = StateRoles<kD>;
  using Shared = StateShared<kD>;
  static constexpr int kSteps = kD / kDepth;
  static constexpr bool kWithTime = kDirection == Direction::kWithTime;

  __device__ StateWalk(const GlaBackwardParams& p, Shared& shared)
      : p_(p), s_(shared), walk_(shared.walk) {}

  __device__ void init() {
    s_.walk = walk_of(p_, kDirection, blockIdx.x);
    s_.stage_ring.init(2, Role::kStateWarps);  // the workspace's tiles, and the tensors'
    barrier_init(&s_.private_full, 1);
    barrier_init_fence();
  }

  // ---- the warp that loads

  __device__ void load() {
    for (int n = 0; n < walk_.count; ++n) {
      s_.stage_ring.wait_empty(n);
      load_stage(s_.stage_ring.slot(n), n);
    }
  }

  // ---- the state

  __device__ void state(int group) {
    float state[kD / 2];
    load_matrix<kD>(state, matrix<const float>(kWithTime ? p_.initial_state : p_.dfinal_state),
                    group);
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      float flow[32];
      step(state, flow, group, n);
      s_.stage_ring.warp_arrive_empty(n);
    }
    if constexpr (kGatedRows && !kWithTime) {
      store_matrix<kD>(state, matrix<float>(p_.dinitial_state), group);
    }
    if (threadIdx.x % kWarpgroupSize == 0) bulk_wait<0>();
  }

 private:
  __device__ std::int64_t index_of(int n) const {
    const std::int64_t first = walk_.packed
                                   ? std::int64_t{walk_.begin / kChunkTokens} + walk_.sequence
                                   : static_cast<std::int64_t>(walk_.sequence) * walk_.chunks;
    return walk_.head * p_.slots + first + walk_.chunk(n);
  }

  template <class Element, class View>
  __device__ StateMatrix<Element> matrix(const View& view) const {
    if (view.data == nullptr) return {};
    Element* const data = view.data + walk_.sequence * view.sequence + walk_.head * view.head;
    if constexpr (kGatedRows) return {data, view.k, view.v, p_.own, p_.other};
    return {data, view.v, view.k, p_.other, p_.own};
  }

  /// Tiles of the workspace and the decay, contiguous; and those of tensors, rows of another
  /// sequence cleared.
  __device__ void load_stage(int stage, int n) {
    SharedBarrier* const full = &s_.stage_ring.full[stage];
    const std::int64_t index = index_of(n);
    constexpr int kOwnTiles = kGatedRows ? 1 : 2;
    if (threadIdx.x % kWarpSize == 0) {
      barrier_arrive_expecting(full, kOwnTiles * sizeof(Tile<kD>) + sizeof(s_.decay[0]));
      bulk_load(shared_address(s_.decay[stage]), p_.through + index * kD, sizeof(s_.decay[0]),
                full);
      void* const entering = workspace_tile<kD>(p_.entering_x, index);
      void* const leaving = workspace_tile<kD>(p_.leaving_y, index);
      if constexpr (kGatedRows) {
        load_own(s_.left[stage], kWithTime ? leaving : entering, full);
      } else {
        load_own(s_.right[stage], kWithTime ? leaving : entering, full);
        load_own(s_.read[stage], kWithTime ? entering : leaving, full);
      }
    }
    const StageLoader<kD> loader(&s_.private_full);
    const HeadSource u{&p_.u_map, walk_.head};
    const HeadSource z{&p_.z_map, walk_.kv_head};
    if constexpr (kGatedRows) {
      Tile<kD>* const tiles[] = {&s_.right[stage], &s_.read[stage]};
      const HeadSource sources[] = {kWithTime ? z : u, kWithTime ? u : z};
      loader.load(tiles, sources, full, walk_, n);
    } else {
      Tile<kD>* const tiles[] = {&s_.left[stage]};
      const HeadSource sources[] = {kWithTime ? z : u};
      loader.load(tiles, sources, full, walk_, n);
    }
  }
  __device__ static void load_own(Tile<kD>& tile, const void* from, SharedBarrier* full) {
    bulk_load(shared_address(&tile), from, sizeof(tile), full);
  }

  __device__ void* flows() const {
    if constexpr (kGatedRows) return kWithTime ? p_.x_flow : p_.y_flow;
    return kWithTime ? p_.u_flow : p_.z_flow;
  }

  __device__ __forceinline__ void step(float (&state)[kD / 2], float (&flow)[32], int group,
                                       int n) {
    const int stage = s_.stage_ring.slot(n);
    const float* const decay = s_.decay[stage];
    std::uint32_t rounded[kSteps][4];
    to_operands<T>(rounded, state);
    s_.stage_ring.wait_full(n);
    if constexpr (kGatedRows && kWithTime) keep_state(rounded, decay, group, n);
    if constexpr (kGatedRows && !kWithTime) meet_state(state, decay, group, n);
    scale(state, decay, group);
    wgmma_pin(state);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      wgmma_n64<T, Major::kK>(flow, rounded[i], along_channels(shared_address(&s_.read[stage]), i),
                              i > 0);
    }
    wgmma_commit();
    const std::uint32_t left = shared_address(s_.left[stage].bytes[group]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN, Major::kMN>(state, along_rows(left, i),
                                          along_rows(shared_address(&s_.right[stage]), i), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(flow);
    write_flow(flow, group, n);
    wgmma_wait<0>();
    wgmma_pin(state);
  }

  __device__ __forceinline__ int row(int group) const { return group * kPanelChannels + at_.row(); }

  __device__ __forceinline__ void scale(float (&state)[kD / 2], const float* decay,
                                        int group) const {
    if constexpr (kGatedRows) {
      const float upper = decay[row(group)];
      const float lower = decay[row(group) + 8];
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) state[i] *= i % 4 < 2 ? upper : lower;
    } else {
#pragma unroll
      for (int block = 0; block < kD / 8; ++block) {
        const float2 f = *reinterpret_cast<const float2*>(&decay[8 * block + at_.column()]);
        state[4 * block] *= f.x;
        state[4 * block + 1] *= f.y;
        state[4 * block + 2] *= f.x;
        state[4 * block + 3] *= f.y;
      }
    }
  }

  /// Whether any of the warp's 16 rows gets through the chunk; both walks decide alike.
  __device__ __forceinline__ bool gets_through(const float* decay, int group) const {
    const float most = fmaxf(decay[row(group)], decay[row(group) + 8]);
    return __any_sync(kFullWarp, !(most < kVanishingDecay)) != 0;
  }
  __device__ __forceinline__ uint4* state_words(int group, int n) const {
    constexpr int kWords = kD * kD / 8;
    return static_cast<uint4*>(p_.states) + index_of(n) * kWords + group * kSteps * kWarpgroupSize +
           at_.thread;
  }
  __device__ __forceinline__ void keep_state(const std::uint32_t (&rounded)[kSteps][4],
                                             const float* decay, int group, int n) const {
    if (!gets_through(decay, group)) return;
    uint4* const to = state_words(group, n);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      to[i * kWarpgroupSize] = {rounded[i][0], rounded[i][1], rounded[i][2], rounded[i][3]};
    }
  }
  /// Leaves the decay of each row times the row of S times that of D.
  __device__ __forceinline__ void meet_state(const float (&d)[kD / 2], const float* decay,
                                             int group, int n) const {
    float upper = 0.0F;
    float lower = 0.0F;
    if (gets_through(decay, group)) {
      const uint4* const from = state_words(group, n);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint4 word = from[i * kWarpgroupSize];
        const float* e = &d[8 * i];
        upper += dot(word.x, e) + dot(word.z, e + 4);
        lower += dot(word.y, e + 2) + dot(word.w, e + 6);
      }
    }
    upper = sum_row(upper) * decay[row(group)];
    lower = sum_row(lower) * decay[row(group) + 8];
    if (at_.lane() % 4 != 0) return;
    float* const to = p_.anchors + index_of(n) * kD + row(group);
    to[0] = upper;
    to[8] = lower;
  }
  __device__ static float dot(std::uint32_t pair, const float* e) {
    const float2 x = unpack<T>(pair);
    return x.x * e[0] + x.y * e[1];
  }

  __device__ __forceinline__ void write_flow(const float (&flow)[32], int group, int n) {
    unsigned char* const panel = s_.flow.bytes[group];
    if (threadIdx.x % kWarpgroupSize == 0) bulk_wait_read<0>();
    warpgroup_sync(group);  // the copy engine has read the last flow
    store_transposed<T>(shared_address(panel), flow, at_);
    async_proxy_fence();
    warpgroup_sync(group);  // all of this one is there
    if (threadIdx.x % kWarpgroupSize == 0) {
      bulk_store(workspace_tile<kD>(flows(), index_of(n)) + group * kPanelBytes,
                 shared_address(panel), kPanelBytes);
      bulk_commit();
    }
  }

  const GlaBackwardParams& p_;
  Shared& s_;
  const Walk& walk_;
  FragmentPlace at_;
};

#endif

/// A block per sequence and head.
template <class T, int kD, bool kGatedRows, Direction kDirection>
__global__ __launch_bounds__(StateRoles<kD>::kThreads, kD == 64 ? 2 : 1) void state_walk(
    const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StateShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  StateWalk<T, kD, kGatedRows, kDirection> block(p, shared);
  if (threadIdx.x == 0) block.init();
  __syncthreads();  // the walk and its barriers are there

  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
  if (group == StateRoles<kD>::kGroups) {
    block.load();
  } else {
    block.state(group);
  }
#endif
}

template <class T, int kD, bool kGatedRows, Direction kDirection>
void launch_state_walk(const GlaBackwardParams& p, cudaStream_t stream) {
  launch<state_walk<T, kD, kGatedRows, kDirection>>(
      {.grid = dim3(static_cast<unsigned>(p.sequence_count * p.heads)),
       .block = dim3(StateRoles<kD>::kThreads),
       .shared_bytes = sizeof(StateShared<kD>),
       .overlaps_previous = true},
      stream, p);
}

template <class T, int kD>
void launch_state_walks(const GlaBackwardParams& p, cudaStream_t stream) {
  launch_state_walk<T, kD, true, Direction::kWithTime>(p, stream);
  launch_state_walk<T, kD, true, Direction::kAgainstTime>(p, stream);
  launch_state_walk<T, kD, false, Direction::kAgainstTime>(p, stream);
  if (p.du.data != nullptr) launch_state_walk<T, kD, false, Direction::kWithTime>(p, stream);
}

}  // namespace attune::cuda::gla_backward
