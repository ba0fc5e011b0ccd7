// dk, dv and the gradient of the initial state: a walk against time.
//
// With D the gradient of the state after chunk c [K, V], b the log2_sum log decay in the chunk,
// bl its last, w_ij = scale exp(b_i - b_j) for i >= j, else 0:
//
//   dk_j = e^{bl - b_j} D v_j   + sum_i w_ij (do_i . v_j) q_i
//   dv_j = e^{bl - b_j} D^T k_j + sum_i w_ij (q_i . k_j) do_i
//   D   <- e^{bl} D + scale sum_i e^{b_i} q_i do_i^T
//
// A block holds D^T in fp32 accumulators, 64 rows (value channels) a warpgroup; these warpgroups
// make dv^T and the next D^T. The warpgroup of scores makes both 64 x 64 products of tokens, hands
// over the first as P^T, keeps the second as an operand, and makes dk from it and a rounded D^T
// that it is handed. Both products have token j along rows, so that one decay serves both.
#pragma once

#include "cuda/chunk_wgmma/backward/key_gradients.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma::backward {

#if ATTUNE_SM90A_CODE

template <class T, class Tile, bool kGateGradients, bool kAdds>
class DkdvWalk {
 public:
  static constexpr int kKeys = Tile::kKeys;
  static constexpr int kValues = Tile::kValues;
  using Role = Roles<kValues>;
  using Shared = DkdvShared<Tile>;
  static constexpr int kSteps = kKeys / kDepth;

  __device__ DkdvWalk(const BackwardParams& p, Shared& shared)
      : p_(p), s_(shared), walk_(shared.walk) {}

  __device__ void init_barriers() {
    constexpr int kConsumers = Role::kStateWarps + Role::kScoreWarps;
    s_.stage_ring.init_copied(1, kConsumers);
    s_.gate_ring.init_published(1, kConsumers + (kGateGradients ? 1 : 0));
    s_.score_ring.init_published(Role::kScoreWarps, Role::kStateWarps);
    s_.flow_ring.init_published(kConsumers, 1);
    s_.state_ring.init_published(Role::kStateWarps, Role::kScoreWarps);
    s_.dk_ring.init_copied(1, 1);
    s_.dv_ring.init_copied(Role::kStateGroups, 1);
    barrier_init(&s_.private_full, 1);
    barrier_init_fence();
  }

  /// Whether two parts of dk, or of dv, are added up: in instances of their own, as the others would take a
  /// twentieth longer.
  __device__ __forceinline__ bool adds_dk() const { return kAdds && p_.stored.dk != nullptr; }
  __device__ __forceinline__ bool adds_dv() const { return kAdds && p_.stored.dv != nullptr; }

  // ---- single warps

  __device__ void load() {
    const StageLoader loader(&s_.private_full);
    const HeadSource k{&p_.k, walk_.kv_head, walk_.key_channel};
    const HeadSource q{&p_.q, walk_.head, walk_.key_channel};
    const HeadSource v{&p_.v, walk_.kv_head, walk_.value_channel};
    const HeadSource d_o{&p_.d_o, walk_.head, walk_.value_channel};
    for (int n = 0; n < walk_.count; ++n) {
      const int i = s_.stage_ring.stage(n);
      s_.stage_ring.wait_empty(n);
      loader.load(&s_.stage_ring.full[i], walk_, n, from(k, s_.k[i]), from(q, s_.q[i]),
                  from(v, s_.v[i]), from(d_o, s_.d_o[i]));
    }
  }

  __device__ void gate_gradients() {
    GateGradientWarp warp(p_, walk_);
    dependency_wait();  // inflows are the dq walk's
    for (int n = 0; n < walk_.count; ++n) {
      const float2 inflow = warp.load_inflow(n);  // arrives while this waits for the rest
      s_.gate_ring.wait_full(n);
      s_.flow_ring.wait_full(n);
      warp.take(s_.flows[s_.flow_ring.stage(n)], s_.gates[s_.gate_ring.stage(n)], inflow, n);
      s_.flow_ring.release_chunk(n);
      s_.gate_ring.release_chunk(n);
    }
    warp.finish();
  }

  /// Of gradients of which two parts are added up: dk, dv or both.
  __device__ void write_sums() {
    TileWriter<kKeys> dk(s_.dk_place, p_.dk, walk_, walk_.key_channel, s_.dk, s_.dk_ring);
    TileWriter<kValues> dv(s_.dv_place, p_.dv, walk_, walk_.value_channel, s_.dv, s_.dv_ring);
    const auto publish_last = [&](int n) {
      if (threadIdx.x % kWarpSize != 0 || n < 0) return;
      bulk_wait<0>();
      if (adds_dk()) dk.publish_chunk(n);
      if (adds_dv()) dv.publish_chunk(n);
    };
    for (int n = 0; n < walk_.count; ++n) {
      (adds_dk() ? s_.dk_ring : s_.dv_ring).wait_full(n);
      publish_last(n - 1);  // which have had a chunk's time
      if (adds_dk()) dk.write(n);
      if (adds_dv()) dv.write(n);
    }
    publish_last(walk_.count - 1);
  }

  /// The warpgroup of scores, which makes dk, too.
  __device__ void scores() { KeyGradients<T, Tile, kGateGradients, kAdds>(p_, s_).make_all(); }

  // ---- D^T and dv^T

  __device__ void state(int group) {
    float d[kKeys / 2];  // 64 rows of D^T
    load_gradient_after<Tile>(d, p_, walk_, group);
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      const int stage = s_.stage_ring.stage(n);
      const ChunkGates& gates = s_.gates[s_.gate_ring.stage(n)];
      std::uint32_t rounded[kSteps][4];
      to_operands<T>(rounded, d);
      hand_over_state(rounded, group, n);
      s_.gate_ring.wait_full(n);
      if constexpr (kGateGradients) put_checkpoint_product(d, gates.total_decay, group, n);
      float dv[32];
      step(d, dv, rounded, gates, group, stage, n);
      s_.stage_ring.release_chunk(n);
      s_.score_ring.release_chunk(n);
      s_.gate_ring.release_chunk(n);
      write_dv(dv, group, n);
    }
    if (walk_.segment == 0) {
      store_matrix<kKeys>(d, values_by_keys<float>(p_.dinitial_state, p_, walk_), group);
    }
    if (leads_warpgroup()) bulk_wait<0>();
  }

 private:
  __device__ __forceinline__ void hand_over_state(const std::uint32_t (&rounded)[kSteps][4],
                                                  int group, int n) {
    s_.state_ring.wait_empty(n);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      store_matrices(block_address(shared_address(s_.state[i / 4]), at_.lane(),
                                   kPanelChannels * group + 16 * at_.warp(), i % 4 * kDepth),
                     rounded[i][0], rounded[i][1], rounded[i][2], rounded[i][3]);
    }
    async_proxy_fence();
    s_.state_ring.publish_chunk(n);
    if constexpr (kFewRegisters<Tile>) warpgroup_sync(group);  // all rows are there
  }

  /// This warp's part of <S, D> at a checkpoint.
  __device__ __forceinline__ void put_checkpoint_product(const float (&d)[kKeys / 2], float decay,
                                                         int group, int n) {
    s_.flow_ring.wait_empty(n);
    if (is_checkpoint(p_, walk_, n, decay)) {
      dependency_wait();  // checkpoints are the dq walk's
      const uint4* const from = checkpoint_words<T, Tile>(p_, walk_, n) +
                                (group * 4 + at_.warp()) * kSteps * kWarpSize + at_.lane();
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint4 word = from[i * kWarpSize];
        const std::uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const float2 x = unpack<T>(pairs[pair]);
          sum = fmaf(x.x, d[8 * i + 2 * pair], sum);
          sum = fmaf(x.y, d[8 * i + 2 * pair + 1], sum);
        }
      }
      sum = warp_sum(sum);
      if (at_.lane() == 0) s_.flows[s_.flow_ring.stage(n)].checkpoint[group * 4 + at_.warp()] = sum;
    }
  }

  __device__ __forceinline__ void step(float (&d)[kKeys / 2], float (&dv)[32],
                                       const std::uint32_t (&rounded)[kSteps][4],
                                       const ChunkGates& gates, int group, int stage, int n) {
    const std::uint32_t d_o = shared_address(s_.d_o[stage].bytes[group]);
    scale_all(d, gates.total_decay);
    wgmma_pin(d);
    s_.stage_ring.wait_full(n);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const auto k = along_channels(shared_address(&s_.k[stage]), i);
      if constexpr (kFewRegisters<Tile>) {
        wgmma_n64<T, Major::kK, Major::kK>(dv, along_channels(shared_address(&s_.state), i), k,
                                           i > 0);
      } else {
        wgmma_n64<T, Major::kK>(dv, rounded[i], k, i > 0);
      }
    }
    wgmma_commit();
    std::uint32_t from_start[4][4];
    load_transposed_scaled<T>(from_start, d_o, gates.from_start, at_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN>(d, from_start[i], along_rows(shared_address(&s_.q[stage]), i), true);
    }
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(dv);
    scale_columns(dv, gates.to_end, at_);
    float outflow[16];
    if constexpr (kGateGradients) {
      multiply_channels<T>(outflow, dv, shared_address(s_.v[stage].bytes[group]), at_);
    }
    std::uint32_t plain[4][4];
    if constexpr (!kFewRegisters<Tile>) load_transposed(plain, d_o, at_);
    s_.score_ring.wait_full(n);
    wgmma_pin(dv);
    wgmma_fence();
    const std::uint32_t scores = shared_address(&s_.scores[s_.score_ring.stage(n)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFewRegisters<Tile>) {
        wgmma_n64<T, Major::kMN, Major::kK>(dv, along_rows(d_o, i), along_channels(scores, i),
                                            true);
      } else {
        wgmma_n64<T, Major::kK>(dv, plain[i], along_channels(scores, i), true);
      }
    }
    wgmma_commit();
    if constexpr (kGateGradients) put_outflow(outflow, group, n);
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(d);
  }

  /// This warp's part of v . dv as it was when it held what comes from after the chunk only.
  __device__ __forceinline__ void put_outflow(float (&sums)[16], int group, int n) {
    float* const to = s_.flows[s_.flow_ring.stage(n)].outflow[group * 4 + at_.warp()];
    *reinterpret_cast<float2*>(&to[2 * at_.lane()]) = sum_columns(sums, at_);
    s_.flow_ring.publish_chunk(n);
  }

  __device__ __forceinline__ void write_dv(const float (&dv)[32], int group, int n) {
    unsigned char* const panel = s_.dv.bytes[group];
    wait_for_room(adds_dv(), s_.dv_ring, n);
    warpgroup_sync(group);  // the copy engine has read the last dv
    store_transposed<T>(shared_address(panel), dv, at_);
    async_proxy_fence();
    warpgroup_sync(group);  // all of this one is there
    if (adds_dv()) return hand_over(s_.dv_ring);
    const int channel = walk_.value_channel + group * kPanelChannels;
    write_panel<T>({p_.dv, p_.dv_rows, p_.value_dim, walk_.value_partial, channel}, panel, walk_,
                   n);
  }

  const BackwardParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  FragmentLane at_;
};

#endif

/// A block per sequence, head, tile of channels and segment. It runs beside the dq walk, behind
/// whose last blocks it starts, and waits for it where it takes something from it; at the latest
/// before it ends, as what comes next waits for this launch alone.
template <class T, class Tile, bool kGateGradients, bool kAdds>
__global__ __launch_bounds__(Roles<Tile::kValues>::kThreads, kWalkBlocks<Tile>) void dkdv_walk(
    const __grid_constant__ BackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Role = Roles<Tile::kValues>;
  using Registers = DkdvRegisters<Tile, kGateGradients>;
  constexpr int kThreads = kWalkBlocks<Tile> * Role::kThreads;  // of a multiprocessor
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<DkdvShared<Tile>*>(shared_bytes);
  dependents_launch();
  DkdvWalk<T, Tile, kGateGradients, kAdds> block(p, shared);
  if (threadIdx.x == 0) {
    shared.walk = walk_of_block(p, Direction::kAgainstTime);
    if constexpr (kAdds) {
      shared.dk_place.init_keys(p, shared.walk, p.stored.dk);
      shared.dv_place.init_values(p, shared.walk, p.stored.dv);
    }
    block.init_barriers();
  }
  __syncthreads();  // the walk and its barriers are there
  if (shared.walk.segments == 0) return dependency_wait();

  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
  if (group == Role::kWarps) {
    take_registers<kThreads, Registers::kOthers>();
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize;
    if (warp == Role::kLoadWarp) block.load();
    if (warp == Role::kGateWarp) gate_warp<T>(p, shared.walk, shared.gates, shared.gate_ring);
    if (kGateGradients && warp == Role::kGradientWarp) block.gate_gradients();
    if (kAdds && warp == Role::kWriteWarp) block.write_sums();
    dependency_wait();
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
void launch_dkdv_walk(const BackwardParams& params, const BackwardShape& shape,
                      cudaStream_t stream) {
  with_shape(shape, [&]<class Tile, bool kGateGradients>() {
    static_assert(sizeof(DkdvShared<Tile>) <= kMostWalkBytes<Tile>);
    const auto launch_walk = [&]<bool kAdds>() {
      launch<dkdv_walk<T, Tile, kGateGradients, kAdds>>(
          {.grid = walk_grid(params),
           .block = dim3(Roles<Tile::kValues>::kThreads),
           .shared_bytes = walk_shared_bytes<Tile>(sizeof(DkdvShared<Tile>), params),
           .overlaps_previous = true},
          stream, params);
    };
    if constexpr (adds_parts({Tile::kKeys, Tile::kValues, kGateGradients})) {
      if (params.adds_keys_or_values()) return launch_walk.template operator()<true>();
    }
    launch_walk.template operator()<false>();
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
