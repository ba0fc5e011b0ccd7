// dq, and what the gate gradients need of the states: a walk with time.
//
// With S the state before chunk c [K, V], b the log2_sum log decay in the chunk, bl its last,
// w_ij = scale exp(b_i - b_j) for i >= j, else 0:
//
//   dq_i = scale e^{b_i} S do_i + sum_j w_ij (do_i . v_j) k_j
//   S   <- e^{bl} S + sum_j e^{bl - b_j} k_j v_j^T
//
// It is the forward pass with do, v, k in the places of q, k, v and a transposed state. A block
// holds S in fp32 accumulators, 64 rows (key channels) a warpgroup; these warpgroups make dq^T and
// the next S. The warpgroup of scores hands them w_ij (do_i . v_j), token j along rows.
//
// For gate gradients q is read besides: q_i times the first term of dq_i is inflow_i. Every few
// chunks the state is left as a checkpoint.
#pragma once

#include "cuda/chunk_wgmma/backward/dq_shared.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma::backward {

#if ATTUNE_SM90A_CODE

template <class T, class Tile, bool kGateGradients>
class DqWalk {
 public:
  static constexpr int kKeys = Tile::kKeys;
  static constexpr int kValues = Tile::kValues;
  using Role = Roles<kKeys>;
  using Shared = DqShared<Tile, kGateGradients>;
  static constexpr int kSteps = kValues / kDepth;

  __device__ DqWalk(const BackwardParams& p, Shared& shared)
      : p_(p), s_(shared), walk_(shared.walk) {}

  __device__ void init_barriers() {
    constexpr int kConsumers = Role::kStateWarps + Role::kScoreWarps;
    s_.stage_ring.init_copied(1, kConsumers);
    s_.query_ring.init_copied(1, Role::kStateWarps);
    s_.gate_ring.init_published(1, kConsumers);
    s_.score_ring.init_published(Role::kScoreWarps, Role::kStateWarps);
    s_.inflow_ring.init_published(Role::kStateWarps, 1);
    barrier_init(&s_.private_full, 1);
    barrier_init(&s_.private_query_full, 1);
    barrier_init_fence();
  }

  // ---- single warps

  __device__ void load() {
    const StageLoader loader(&s_.private_full);
    const StageLoader query_loader(&s_.private_query_full);
    const HeadSource v{&p_.v, walk_.kv_head, walk_.value_channel};
    const HeadSource d_o{&p_.d_o, walk_.head, walk_.value_channel};
    const HeadSource k{&p_.k, walk_.kv_head, walk_.key_channel};
    const HeadSource q{&p_.q, walk_.head, walk_.key_channel};
    for (int n = 0; n < walk_.count; ++n) {
      const int i = s_.stage_ring.stage(n);
      s_.stage_ring.wait_empty(n);
      // One chunk under way at a time is 64 KB and keeps the memory busy. With more, requests queue
      // up, and some multiprocessors get ahead of others.
      if (!Tile::kIsSmall && n > 0) s_.stage_ring.wait_full(n - 1);
      loader.load(&s_.stage_ring.full[i], walk_, n, from(v, s_.v[i]), from(d_o, s_.d_o[i]),
                  from(k, s_.k[i]));
      if constexpr (kGateGradients) {
        const int slot = s_.query_ring.stage(n);
        s_.query_ring.wait_empty(n);
        query_loader.load(&s_.query_ring.full[slot], walk_, n, from(q, s_.q[slot]));
      }
    }
  }

  /// Adds up the warps' sums of the inflows.
  __device__ void write_inflows() {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int n = 0; n < walk_.count; ++n) {
      s_.inflow_ring.wait_full(n);
      const auto& sums = s_.inflow[s_.inflow_ring.stage(n)];
      float* const to =
          p_.inflow + walk_.owner * p_.rows + walk_.batch * p_.sequences.tokens + walk_.token(n);
#pragma unroll
      for (int row = lane; row < kChunkTokens; row += kWarpSize) {
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < Role::kStateWarps; ++i) sum += sums[i][row];
        if (row < walk_.rows(n)) to[row] = sum;
      }
      s_.inflow_ring.release_chunk(n);
    }
  }

  // ---- scores

  __device__ void scores() {
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      const int stage = s_.stage_ring.stage(n);
      const ChunkGates& gates = s_.gates[s_.gate_ring.stage(n)];
      float vo[32];
      s_.stage_ring.wait_full(n);
      wgmma_fence();
      multiply_rows<T, kValues>(vo, shared_address(&s_.v[stage]), shared_address(&s_.d_o[stage]));
      wgmma_commit();
      s_.gate_ring.wait_full(n);
      const RowDecays row0(gates, at_.row());
      const RowDecays row1(gates, at_.row() + 8);
      wgmma_wait<0>();
      wgmma_pin(vo);
      s_.stage_ring.release_chunk(n);
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        scale_scores(&vo[4 * block], gates, row0, row1, 8 * block + at_.column());
      }
      s_.gate_ring.release_chunk(n);
      s_.score_ring.wait_empty(n);
      store_rows<T>(shared_address(&s_.scores[s_.score_ring.stage(n)]), vo, at_);
      async_proxy_fence();
      s_.score_ring.publish_chunk(n);
    }
  }

  // ---- S and dq^T

  __device__ void state(int group) {
    float state[kValues / 2];  // 64 rows of S
    load_state_before<Tile>(state, p_, walk_, group);
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      const int stage = s_.stage_ring.stage(n);
      float dq[32];
      step(state, dq, s_.gates[s_.gate_ring.stage(n)], group, stage, n);
      s_.stage_ring.release_chunk(n);
      s_.score_ring.release_chunk(n);
      s_.gate_ring.release_chunk(n);
      write_dq(dq, group, n);
    }
    if (threadIdx.x % kWarpgroupSize == 0) finish_panel(s_.dq_place, adds(), walk_, group);
  }

 private:
  /// Whether two parts of dq are added up.
  __device__ __forceinline__ bool adds() const {
    return !Tile::kIsSmall && p_.stored.dq != nullptr;
  }

  __device__ __forceinline__ void scale_scores(float* vo, const ChunkGates& gates,
                                               const RowDecays& row0, const RowDecays& row1,
                                               int column) const {
    const float2 b = *reinterpret_cast<const float2*>(&gates.log2_sum[column]);
    vo[0] *= p_.scale * row0.to(b.x, column);
    vo[1] *= p_.scale * row0.to(b.y, column + 1);
    vo[2] *= p_.scale * row1.to(b.x, column);
    vo[3] *= p_.scale * row1.to(b.y, column + 1);
  }

  __device__ __forceinline__ void step(float (&state)[kValues / 2], float (&dq)[32],
                                       const ChunkGates& gates, int group, int stage, int n) {
    const std::uint32_t k = shared_address(s_.k[stage].bytes[group]);
    std::uint32_t rounded[kSteps][4];
    to_operands<T>(rounded, state);
    s_.gate_ring.wait_full(n);
    scale_all(state, gates.total_decay);
    wgmma_pin(state);
    s_.stage_ring.wait_full(n);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      wgmma_n64<T, Major::kK>(dq, rounded[i], along_channels(shared_address(&s_.d_o[stage]), i),
                              i > 0);
    }
    wgmma_commit();
    if constexpr (kGateGradients) {
      if (is_checkpoint(p_, walk_, n, gates.total_decay)) write_checkpoint(rounded, group, n);
    }
    std::uint32_t to_end[4][4];
    load_transposed_scaled<T>(to_end, k, gates.to_end, at_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN>(state, to_end[i], along_rows(shared_address(&s_.v[stage]), i), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(dq);
    scale_columns(dq, gates.from_start, at_);
    float inflow[16];
    if constexpr (kGateGradients) {
      s_.query_ring.wait_full(n);
      const TokenTile<kKeys>& q = s_.q[s_.query_ring.stage(n)];
      multiply_channels<T>(inflow, dq, shared_address(q.bytes[group]), at_);
      s_.query_ring.release_chunk(n);
    }
    std::uint32_t plain[4][4];
    if constexpr (!kFewRegisters<Tile>) load_transposed(plain, k, at_);
    s_.score_ring.wait_full(n);
    wgmma_pin(dq);
    wgmma_fence();
    const std::uint32_t scores = shared_address(&s_.scores[s_.score_ring.stage(n)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFewRegisters<Tile>) {
        wgmma_n64<T, Major::kMN, Major::kMN>(dq, along_rows(k, i), along_rows(scores, i), true);
      } else {
        wgmma_n64<T, Major::kMN>(dq, plain[i], along_rows(scores, i), true);
      }
    }
    wgmma_commit();
    if constexpr (kGateGradients) put_inflow(inflow, group, n);
    wgmma_wait<0>();
    wgmma_pin(dq);
    wgmma_pin(state);
  }

  /// This warp's part of q . dq as it was when it held what comes from before the chunk only.
  __device__ __forceinline__ void put_inflow(float (&sums)[16], int group, int n) {
    s_.inflow_ring.wait_empty(n);
    float* const to = s_.inflow[s_.inflow_ring.stage(n)][group * 4 + at_.warp()];
    *reinterpret_cast<float2*>(&to[2 * at_.lane()]) = sum_columns(sums, at_);
    s_.inflow_ring.publish_chunk(n);
  }

  /// Leaves S for the other walk.
  __device__ __forceinline__ void write_checkpoint(const std::uint32_t (&rounded)[kSteps][4],
                                                   int group, int n) {
    uint4* const to = checkpoint_words<T, Tile>(p_, walk_, n) + at_.lane();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {  // 16 value channels each
      to[(i * (kKeys / kDepth) + group * 4 + at_.warp()) * kWarpSize] = {
          transpose_matrix(rounded[i][0]), transpose_matrix(rounded[i][2]),
          transpose_matrix(rounded[i][1]), transpose_matrix(rounded[i][3])};
    }
  }

  __device__ __forceinline__ void write_dq(const float (&dq)[32], int group, int n) {
    unsigned char* const panel = s_.dq.bytes[group];
    if (threadIdx.x % kWarpgroupSize == 0) wait_for_panel(s_.dq_place, adds(), walk_, group, n);
    warpgroup_sync(group);  // the copy engine has read the last dq
    store_transposed<T>(shared_address(panel), dq, at_);
    async_proxy_fence();
    warpgroup_sync(group);  // all of this one is there
    const int channel = walk_.key_channel + group * kPanelChannels;
    write_part<T>(s_.dq_place, adds(), {p_.dq, p_.dq_rows, p_.key_dim, s_.dq_place.head, channel},
                  walk_, panel, group, n);
  }

  const BackwardParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  FragmentLane at_;
};

#endif

/// A block per sequence, head, tile of channels and segment.
template <class T, class Tile, bool kGateGradients>
__global__ __launch_bounds__(Roles<Tile::kKeys>::kThreads, kWalkBlocks<Tile>) void dq_walk(
    const __grid_constant__ BackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Role = Roles<Tile::kKeys>;
  using Registers = DqRegisters<Tile>;
  constexpr int kThreads = kWalkBlocks<Tile> * Role::kThreads;  // of a multiprocessor
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<DqShared<Tile, kGateGradients>*>(shared_bytes);
  // Where sequences lie may be what the launch before writes, if it is not of this call, and which
  // are long.
  const bool asks = p.sequences.bounds != nullptr && (p.segments == 1 || p.by_parts());
  if (asks) dependency_wait();
  DqWalk<T, Tile, kGateGradients> block(p, shared);
  if (threadIdx.x == 0) {
    shared.walk = walk_of_block(p, Direction::kWithTime);
    shared.dq_place.init_keys(p, shared.walk, p.stored.dq);
    block.init_barriers();
  }
  take_over_from_previous_launch();
  __syncthreads();  // the walk and its barriers are there
  if (shared.walk.segments == 0) return;

  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
  if (group == Role::kWarps) {
    take_registers<kThreads, Registers::kOthers>();
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize;
    if (warp == Role::kLoadWarp) block.load();
    if (warp == Role::kGateWarp) gate_warp<T>(p, shared.walk, shared.gates, shared.gate_ring);
    if (kGateGradients && warp == Role::kGradientWarp) block.write_inflows();
  } else if (group == Role::kScores) {
    take_registers<kThreads, Registers::kScores>();
    block.scores();
  } else {
    take_registers<kThreads, Registers::kState>();
    block.state(group);
  }
#endif
}

template <class T>
void launch_dq_walk(const BackwardParams& params, const BackwardShape& shape, cudaStream_t stream) {
  with_shape(shape, [&]<class Tile, bool kGateGradients>() {
    static_assert(sizeof(DqShared<Tile, kGateGradients>) <= kMostWalkBytes<Tile>);
    launch<dq_walk<T, Tile, kGateGradients>>(
        {.grid = walk_grid(params),
         .block = dim3(Roles<Tile::kKeys>::kThreads),
         .shared_bytes = walk_shared_bytes<Tile>(sizeof(DqShared<Tile, kGateGradients>), params),
         .overlaps_previous = true},
        stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
