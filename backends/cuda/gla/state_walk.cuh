// What goes through the states: a walk over the chunks of a sequence and head, with a block of its
// state in fp32 accumulators, for each of the terms of S and D in params.hpp.
//
//   flow_t = X r_t                        r: u, z, L y or E x, by token
//   X     <- decay X + sum_t l_t m_t^T    l along the state's rows, m along its columns
//
// A warpgroup holds 64 rows. The rows are channels of the gated side (S, D), or of the other one
// (S^T, D^T). Walks of S and D with the gated side's rows leave S and multiply by it where it
// survives a chunk, for the gradients of the gates. A walk over one chunk that starts from zeros, as
// those of most short sequences, has flows of zeros, and loads nothing. Launches of walks are in
// state_walk_kernels.cuh.
#pragma once

#include "cuda/gla/state_flows.cuh"

namespace attune::cuda::gla {

#if ATTUNE_SM90A_CODE

template <class T, int kD, Gated kGated, Direction kDirection, Leaves kLeaves>
class StateWalk {
 public:
  using Role = StateRoles<kD>;
  using Shared = StateShared<kD>;
  static constexpr int kSteps = kD / kDepth;
  static constexpr bool kWithTime = kDirection == Direction::kWithTime;
  static constexpr bool kBoth = kGated == Gated::kBoth;
  static constexpr bool kOwnRows = kGated != Gated::kColumns;
  static constexpr bool kFlows = kLeaves == Leaves::kFlows;

  __device__ StateWalk(const GlaParams& p, Shared& shared, int tile)
      : p_(p), s_(shared), walk_(shared.walk), block_(p, tile), flows_(p, shared, block_) {}

  /// By one warp.
  __device__ void init(std::int64_t index) {
    if constexpr (kFlows) {
      if (p_.walks_over_some()) index = walk_over_some(p_, index);
    }
    if (threadIdx.x != 0) return;
    if (!kFlows && p_.by_parts()) {
      s_.walk = walk_at(p_, kDirection, p_.parts.sum_places, index);
    } else {
      s_.walk = index < p_.walks() ? walk_of(p_, kDirection, index) : ChunkWalk{};
    }
    // The workspace's tiles, and the tensors'.
    s_.stage_ring.init_copied(kBoth ? 1 : 2, Role::kStateWarps);
    constexpr int kWarps = kWarpgroupSize / kWarpSize;
    s_.flow_ring.init_published(kWarps * flows_.groups_with_rows(), 1);
    barrier_init(&s_.private_full, 1);
    barrier_init_fence();
  }

  /// Whether there is none, or all flows are zeros and nobody asks for what it ends with.
  __device__ bool is_idle() const {
    if (walk_.segments == 0) return true;
    if constexpr (!kFlows) return false;
    if constexpr (kOwnRows && !kWithTime) {
      if (p_.dinitial_state.data != nullptr) return false;
    }
    return walk_.chunks <= 1 && (kWithTime ? s_is_zero() : p_.dfinal_state.data == nullptr);
  }
  /// What an idle walk leaves; by all threads.
  __device__ void leave_zeros() const {
    if constexpr (!kFlows) return;
    flows_.leave_zeros([this](int group) {
      if constexpr (kOwnRows && !kWithTime) {
        if (at_.thread < kPanelChannels) state_product(group * kPanelChannels + at_.thread, 0) = 0;
      }
    });
  }

  /// The work of the warp that loads, and of the one that stores.
  __device__ StateLoads<kD, kGated, kDirection, kLeaves> loads() const { return {p_, s_, block_}; }
  __device__ void store_flows() const { flows_.store(); }

  // ---- the state

  __device__ void state(int group) {
    if (!flows_.has_rows(group)) return pass_chunks();
    float state[kD / 2];
    block_.load_start(state, p_, walk_, group);
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      float flow[32];
      step(state, flow, group, n);
      s_.stage_ring.release_chunk(n);
    }
    if constexpr (kOwnRows && !kWithTime) {
      if (walk_.segment == 0) {
        store_matrix<kD>(state, block_.template of_sequence<float>(p_, p_.dinitial_state, walk_),
                         group);
      }
    }
  }

  /// What the segment of a walk adds to the state, and its decay.
  __device__ void segment_sum(int group) {
    const auto thread = static_cast<int>(threadIdx.x);
    const bool of_other = kBoth && thread >= kD;
    float over = 1.0F;
    float state[kD / 2] = {};
    for (int n = 0; n < walk_.count; ++n) {
      const int stage = s_.stage_ring.stage(n);
      s_.stage_ring.wait_full(n);
      over *= (of_other ? s_.other_decay : s_.own_decay)[stage][thread % kD];
      scale(state, group, stage);
      wgmma_pin(state);
      wgmma_fence();
      add_chunk(state, group, stage);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_pin(state);
      s_.stage_ring.release_chunk(n);
    }
    const std::int64_t index = walk_.owner;
    block_.store_segment_sum(state, p_, index, group);
    if (thread < kD) {
      if (block_.other_tile() == 0) block_.own_decays(p_, index)[thread] = over;
    } else if (of_other && block_.own_tile() == 0) {
      block_.other_decays(p_, index)[thread % kD] = over;
    }
  }

 private:
  __device__ __forceinline__ void step(float (&state)[kD / 2], float (&flow)[32], int group,
                                       int n) {
    const int stage = s_.stage_ring.stage(n);
    std::uint32_t rounded[kSteps][4];
    to_operands<T>(rounded, state);
    s_.stage_ring.wait_full(n);
    if constexpr (kOwnRows && kWithTime) write_checkpoint(rounded, group, n);
    if constexpr (kOwnRows && !kWithTime) multiply_checkpoint(state, group, n);
    scale(state, group, stage);
    wgmma_pin(state);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      wgmma_n64<T, Major::kK>(flow, rounded[i], along_channels(shared_address(&s_.read[stage]), i),
                              i > 0);
    }
    wgmma_commit();
    add_chunk(state, group, stage);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(flow);
    flows_.hand_over(flow, at_, group, n);
    wgmma_wait<0>();
    wgmma_pin(state);
  }
  __device__ __forceinline__ void add_chunk(float (&state)[kD / 2], int group, int stage) const {
    const std::uint32_t left = shared_address(s_.left[stage].bytes[group]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN, Major::kMN>(state, along_rows(left, i),
                                          along_rows(shared_address(&s_.right[stage]), i), true);
    }
  }

  __device__ __forceinline__ int row(int group) const { return group * kPanelChannels + at_.row(); }

  __device__ __forceinline__ void scale(float (&state)[kD / 2], int group, int stage) const {
    if constexpr (kOwnRows) {
      const float upper = s_.own_decay[stage][row(group)];
      const float lower = s_.own_decay[stage][row(group) + 8];
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) state[i] *= i % 4 < 2 ? upper : lower;
    }
    if constexpr (kOwnRows && !kBoth) return;
    const float* const decay = kOwnRows ? s_.other_decay[stage] : s_.own_decay[stage];
#pragma unroll
    for (int block = 0; block < kD / 8; ++block) {
      const float2 f = *reinterpret_cast<const float2*>(&decay[8 * block + at_.column()]);
      state[4 * block] *= f.x;
      state[4 * block + 1] *= f.y;
      state[4 * block + 2] *= f.x;
      state[4 * block + 3] *= f.y;
    }
  }

  // ---- S where it meets D

  /// Where its sequence has one chunk.
  __device__ bool s_is_zero() const { return p_.initial_state.data == nullptr; }
  /// Whether any of the warp's 16 rows survives the chunk; both walks decide alike.
  __device__ __forceinline__ bool rows_survive(const float* decay, int group) const {
    const float most = fmaxf(decay[row(group)], decay[row(group) + 8]);
    return __any_sync(kFullWarp, !(most < kVanishingDecay)) != 0;
  }
  /// Channels that there are from the state's first column on.
  __device__ __forceinline__ int columns_left() const {
    return (kOwnRows ? p_.other : p_.own) - block_.column_tile() * kD;
  }
  __device__ __forceinline__ uint4* checkpoint_words(int group, int n) const {
    constexpr int kWords = kD * kD / 8;
    const std::int64_t block =
        (chunk_index(p_, walk_, n) * p_.own_tiles + block_.row_tile()) * p_.other_tiles +
        block_.column_tile();
    return static_cast<uint4*>(p_.checkpoints) + block * kWords + group * kSteps * kWarpgroupSize +
           at_.thread;
  }
  __device__ __forceinline__ void write_checkpoint(const std::uint32_t (&rounded)[kSteps][4],
                                                   int group, int n) const {
    if (!rows_survive(s_.own_decay[s_.stage_ring.stage(n)], group)) return;
    uint4* const to = checkpoint_words(group, n);
    const int columns = columns_left();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i * kDepth >= columns) continue;
      to[i * kWarpgroupSize] = {rounded[i][0], rounded[i][1], rounded[i][2], rounded[i][3]};
    }
  }
  /// Leaves the decay of each row times the row of S times that of D; of both sides' decays, if
  /// columns have them too.
  __device__ __forceinline__ void multiply_checkpoint(const float (&d)[kD / 2], int group,
                                                      int n) const {
    const int stage = s_.stage_ring.stage(n);
    const float* const decay = s_.own_decay[stage];
    float upper = 0.0F;
    float lower = 0.0F;
    const bool is_zero = walk_.chunks == 1 && s_is_zero();
    if (!is_zero && rows_survive(decay, group)) {
      dependency_wait();  // those of the walks before
      const uint4* const from = checkpoint_words(group, n);
      const int columns = columns_left();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        uint4 word{};  // not a branch around all that is made of it: loads go ahead of that
        if (i * kDepth < columns) word = from[i * kWarpgroupSize];
        const float* e = &d[8 * i];
        const int column = 16 * i + at_.column();
        upper += dot(word.x, e, column, stage) + dot(word.z, e + 4, column + 8, stage);
        lower += dot(word.y, e + 2, column, stage) + dot(word.w, e + 6, column + 8, stage);
      }
    }
    upper = sum_row(upper) * decay[row(group)];
    lower = sum_row(lower) * decay[row(group) + 8];
    if (at_.lane() % 4 != 0) return;
    float* const to = &state_product(row(group), n);
    to[0] = upper;
    to[8] = lower;
  }
  __device__ __forceinline__ float& state_product(int row, int n) const {
    return p_
        .state_products[(block_.column_tile() * p_.slots * p_.heads + chunk_index(p_, walk_, n)) *
                            own_channels(p_) +
                        block_.row_tile() * kD + row];
  }
  __device__ __forceinline__ float dot(std::uint32_t pair, const float* e, int column,
                                       int stage) const {
    float2 x = unpack<T>(pair);
    if constexpr (kBoth) {
      x = times(x, *reinterpret_cast<const float2*>(&s_.other_decay[stage][column]));
    }
    return x.x * e[0] + x.y * e[1];
  }

  /// What a warpgroup does that has no rows.
  __device__ void pass_chunks() {
    for (int n = 0; n < walk_.count; ++n) {
      s_.stage_ring.wait_full(n);
      s_.stage_ring.release_chunk(n);
    }
  }

  const GlaParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  const StateBlock<kD, kGated, kDirection> block_;
  const StateFlows<T, kD, kGated, kDirection> flows_;
  FragmentLane at_;
};

#endif

}  // namespace attune::cuda::gla
