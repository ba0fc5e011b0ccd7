// What a warpgroup makes of the chunks that a block of the parallel form takes: the block's own chunk
// first, and then back in time.
#pragma once

#include "cuda/chunk_wgmma/parallel/producers.cuh"
#include "cuda/chunk_wgmma/scores.cuh"
#include "cuda/chunks/value_pairs.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::chunk_wgmma {

/// All of both teams.
template <class Shape>
__device__ __forceinline__ void teams_sync() {
  named_barrier_sync<1>(Shape::kTeams * kWarpgroupSize);
}

/// A warpgroup that makes outputs.
template <class T, class Shape>
class Team {
 public:
  __device__ __forceinline__ Team(const WalkParams& p, const ParallelItem& item,
                                  ParallelShared<Shape>& shared, int team)
      : p_(p), item_(item), shared_(shared), team_(team) {}

  __device__ __forceinline__ void make_outputs() {
    o_.clear();
    if constexpr (Shape::kOwn == 1) {
      barrier_wait(&shared_.rows_full, 0);
      row_factor_ = {shared_.rows[me_.row], shared_.rows[me_.row + 8]};
      shared_.q_ring.wait_full(0);
      take_chunks(team_, Shape::kTeams);
    } else {
      own_ = item_.own - 1 - team_;
      for (int n = 0; n < (own_ < 0 ? item_.count : own_); ++n) leave_out(n);
      if (own_ >= 0) {
        shared_.q_ring.wait_full(own_);
        take_chunks(own_, 1);
      }
    }
    teams_sync<Shape>();
    const ConstStateView initial = state_of(p_.initial, item_.n);
    if (initial.data != nullptr) {
      place_initial(initial);
      async_proxy_fence();
      teams_sync<Shape>();
      add_initial();
    }
    if constexpr (Shape::kOwn == 1) give_partial_outputs();
    teams_sync<Shape>();  // nobody reads queries any more
    if (own_ >= 0) store_outputs();
  }

 private:
  /// The queries of this team's chunk.
  __device__ __forceinline__ std::uint32_t queries() const {
    return shared_address(shared_.own) + own_ * Shape::kPanelsK * kPanelBytes;
  }

  /// A chunk behind this team's.
  __device__ __forceinline__ void leave_out(int n) {
    shared_.k_ring.wait_full(n);
    shared_.k_ring.release_chunk(n);
    shared_.decay_ring.wait_full(n);
    shared_.decay_ring.release_chunk(n);
    shared_.v_ring.wait_full(n);
    shared_.v_ring.release_chunk(n);
  }

  /// Every step-th chunk from `n` on. The next one's scores are made beside the product of this one's
  /// with its values.
  __device__ __forceinline__ void take_chunks(int n, int step) {
    if (n >= item_.count) return;
    float scores[kChunkProduct];
    ValueFragments weights;  // the scores as the left operand of that product
    queue_chunk_scores(scores, n);
    if (n == own_) {
      const ChunkDecays& decays = decays_of(n);
      if (Shape::kOwn > 1) {
        row_factor_ = {decays.from_start[me_.row], decays.from_start[me_.row + 8]};
      }
      ScoreFactors factors;
      factors.make(decays, me_, p_.scale, unmasked_scores(me_, p_.reverse));
      wait_for_scores<0>(scores, n);
#pragma unroll
      for (int i = 0; i < kChunkProduct; ++i) {
        scores[i] = factors.at[i] != 0.0F ? scores[i] * factors.at[i] : 0.0F;
      }
    } else {
      wait_for_scores<0>(scores, n);
      weigh_scores(scores, n);
    }
    shared_.decay_ring.release_chunk(n);
    round_scores(weights, scores);
    for (int next = n + step; next < item_.count; next += step) {
      queue_chunk_scores(scores, next);
      queue_outputs(weights, n);
      wait_for_scores<1>(scores, next);
      weigh_scores(scores, next);
      shared_.decay_ring.release_chunk(next);
      end_outputs(weights, n);
      round_scores(weights, scores);
      n = next;
    }
    queue_outputs(weights, n);
    end_outputs(weights, n);
  }

  /// Those of a chunk that this team takes, when they are there.
  __device__ __forceinline__ const ChunkDecays& decays_of(int n) {
    shared_.decay_ring.wait_full(n);
    return shared_.decays[n % Shape::kStages];
  }
  __device__ __forceinline__ void queue_chunk_scores(float (&scores)[kChunkProduct], int n) {
    shared_.k_ring.wait_full(n);
    queue_scores<T, Shape::kTileK>(scores, queries(),
                                   shared_address(shared_.k[n % Shape::kStages]));
  }
  template <int kPending>
  __device__ __forceinline__ void wait_for_scores(float (&scores)[kChunkProduct], int n) {
    wgmma_wait<kPending>();
    wgmma_pin(scores);
    shared_.k_ring.release_chunk(n);
  }
  /// Times the decays from a chunk's tokens to this team's.
  __device__ __forceinline__ void weigh_scores(float (&scores)[kChunkProduct], int n) {
    const ChunkDecays& decays = decays_of(n);
#pragma unroll
    for (int i = 0; i < kChunkProduct; i += 4) {
      const float2 column = *reinterpret_cast<const float2*>(decays.to_end + 2 * i + me_.column);
      scores[i] *= row_factor_.x * column.x;
      scores[i + 1] *= row_factor_.x * column.y;
      scores[i + 2] *= row_factor_.y * column.x;
      scores[i + 3] *= row_factor_.y * column.y;
    }
    if (Shape::kOwn > 1 && n < item_.own) {  // those before it decay over it, too
      row_factor_.x *= decays.total;
      row_factor_.y *= decays.total;
    }
  }
  __device__ __forceinline__ static void round_scores(ValueFragments& to,
                                                      const float (&scores)[kChunkProduct]) {
#pragma unroll
    for (int s = 0; s < ValueFragments::kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to.step[s][i] = pack<T>(scores[s * 8 + i * 2], scores[s * 8 + i * 2 + 1]);
      }
    }
  }
  __device__ __forceinline__ void queue_outputs(const ValueFragments& weights, int n) {
    shared_.v_ring.wait_full(n);
    wgmma_fence();
    queue_state_update<T>(o_, weights, shared_address(shared_.v[n % Shape::kStages]));
    wgmma_commit();
  }
  __device__ __forceinline__ void end_outputs(const ValueFragments& weights, int n) {
    wgmma_wait<0>();
    o_.pin();
    weights.hold();
    shared_.v_ring.release_chunk(n);
  }

  /// Rounds the initial state into panels of 64 keys by 64 values, where keys were.
  __device__ __forceinline__ void place_initial(const ConstStateView& initial) {
    constexpr int kRowPairs = Shape::kTileV / 2;
    constexpr int kStep = Shape::kTeams * kWarpgroupSize / kRowPairs;  // keys at once
    constexpr int kAtOnce = 16;                                        // loads under way
    const int thread = team_ * kWarpgroupSize + me_.thread;
    const int column = thread % kRowPairs * 2;
    const int v = item_.tile * Shape::kTileV + column;
    const float* const from = initial.data + item_.head * initial.head + v * initial.v;
    const bool is_whole = v + 1 < p_.extents.V && has_value_pairs(initial);
    std::byte* const panel = shared_.k[0] + column / kPanelChannels * kPanelBytes;
    const float* at = from + thread / kRowPairs * initial.k;
    for (int first = thread / kRowPairs; first < Shape::kTileK; first += kAtOnce * kStep) {
      float2 pairs[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i, at += kStep * initial.k) {
        pairs[i] = {};
        if (first + i * kStep >= p_.extents.K) continue;
        if (is_whole) {
          pairs[i] = *reinterpret_cast<const float2*>(at);
        } else {
          if (v < p_.extents.V) pairs[i].x = at[0];
          if (v + 1 < p_.extents.V) pairs[i].y = at[initial.v];
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = first + i * kStep;
        std::byte* const to = panel + k / kChunkTokens * Shape::kPanelsV * kPanelBytes +
                              swizzled(k % kChunkTokens, column % kPanelChannels * sizeof(T));
        *reinterpret_cast<std::uint32_t*>(to) =
            pack<T>(kStateScale<T> * pairs[i].x, kStateScale<T> * pairs[i].y);
      }
    }
  }

  /// O += scale 2^b Q S_0
  __device__ __forceinline__ void add_initial() {
    constexpr bool kInTurns = Shape::kOwn == 1;  // both teams make the same outputs
    const float before = shared_.before * (1.0F / kStateScale<T>);
    const float2 factor{row_factor_.x * before, row_factor_.y * before};
    if (own_ < 0) return;
    for (int panel = kInTurns ? team_ : 0; panel < Shape::kPanelsK;
         panel += kInTurns ? Shape::kTeams : 1) {
      ValueFragments q;
      const std::uint32_t tile = queries() + panel * kPanelBytes;
      const int row = me_.warp * 16 + me_.lane % 16;
#pragma unroll
      for (int s = 0; s < ValueFragments::kSteps; ++s) {
        load_matrices(q.step[s], tile + swizzled(row, s * kDepthBytes + me_.lane / 16 * 16));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = unpack<T>(q.step[s][i]);
          const float by = i % 2 == 0 ? factor.x : factor.y;
          q.step[s][i] = pack<T>(pair.x * by, pair.y * by);
        }
      }
      wgmma_fence();
      queue_state_update<T>(o_, q,
                            shared_address(shared_.k[0]) + panel * Shape::kPanelsV * kPanelBytes);
      wgmma_commit();
      wgmma_wait<0>();
      o_.pin();
      q.hold();
    }
  }

  /// Whether this team stores a panel of outputs.
  __device__ __forceinline__ bool stores(int panel) const {
    return Shape::kOwn > 1 || panel % Shape::kTeams == team_;
  }
  __device__ __forceinline__ float4* partial_outputs(int panel) const {
    return reinterpret_cast<float4*>(shared_.v[0]) + panel * (kOfPanel / 4) * kWarpgroupSize +
           me_.thread;
  }
  /// Gives the other team what this one has of the panels that that one stores.
  __device__ __forceinline__ void give_partial_outputs() {
#pragma unroll
    for (int panel = 0; panel < Shape::kPanelsV; ++panel) {
      if (stores(panel)) continue;
      float4* const to = partial_outputs(panel);
#pragma unroll
      for (int i = 0; i < kOfPanel; i += 4) {
        const int at = panel * kOfPanel + i;
        to[i / 4 * kWarpgroupSize] = {o_[at], o_[at + 1], o_[at + 2], o_[at + 3]};
      }
    }
  }

  __device__ __forceinline__ void store_outputs() {
    const int row = me_.warp * 16 + me_.lane % 16;
    const int byte = me_.lane / 16 * 16;
    std::byte* const panels =
        shared_.own + (Shape::kOwn > 1 ? team_ * Shape::kPanelsV * kPanelBytes : 0);
#pragma unroll
    for (int panel = 0; panel < Shape::kPanelsV; ++panel) {
      if (!stores(panel)) continue;
      const std::uint32_t tile = shared_address(panels) + panel * kPanelBytes;
      const float4* const others = partial_outputs(panel);
#pragma unroll
      for (int i = 0; i < kOfPanel; i += 8) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int at = panel * kOfPanel + i + 4 * j;
          float4 o{o_[at], o_[at + 1], o_[at + 2], o_[at + 3]};
          if (Shape::kOwn == 1) {
            const float4 other = others[(i / 4 + j) * kWarpgroupSize];
            o = {o.x + other.x, o.y + other.y, o.z + other.z, o.w + other.w};
          }
          pairs[2 * j] = pack<T>(o.x, o.y);
          pairs[2 * j + 1] = pack<T>(o.z, o.w);
        }
        store_matrices(tile + swizzled(row, i * 4 + byte), pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
    async_proxy_fence();
    if (team_ == 0) {
      named_barrier_sync<2>(kWarpgroupSize);
    } else {
      named_barrier_sync<3>(kWarpgroupSize);
    }
    if (me_.warp > 0) return;
    for (int panel = 0; panel < Shape::kPanelsV; ++panel) {
      if (stores(panel)) copy_panel(panels + panel * kPanelBytes, panel);
    }
    bulk_commit();
    bulk_wait_read<0>();
  }

  __device__ __forceinline__ void copy_panel(const std::byte* from, int panel) {
    const int first = item_.row_of_taken(own_, p_.reverse);
    const int rows = item_.rows_from(first);
    const int x = item_.tile * Shape::kTileV + panel * kPanelChannels;
    if (rows < kChunkTokens && p_.sequences.bounds != nullptr) {
      const TokenView& o = p_.o_rows;
      T* const to =
          static_cast<T*>(o.data) + x + row_offset(o, item_.batch, item_.begin + first, item_.head);
      copy_rows<T>(from, to, o.token, rows, p_.extents.V - x);
    } else if (me_.lane == 0) {
      tensor_store(&p_.o, shared_address(from), x, item_.head, item_.begin + first, item_.batch);
    }
  }

  static constexpr int kOfPanel = kPanelChannels / 2;  // registers

  const WalkParams& p_;
  const ParallelItem& item_;
  ParallelShared<Shape>& shared_;
  const int team_;
  int own_ = 0;  // of the chunks that are taken, the one whose outputs these are; -1: none
  const Lane me_;
  StateTile<Shape::kTileV> o_;
  float2 row_factor_;
};

}  // namespace attune::cuda::chunk_wgmma

#endif
