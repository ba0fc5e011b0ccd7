// What the warpgroup of scores of a dk, dv walk makes of a chunk (dkdv_walk.cuh): both products of its
// tokens (pair_scores.cuh), and dk.
#pragma once

#include "cuda/chunk_wgmma/backward/pair_scores.cuh"

namespace attune::cuda::chunk_wgmma::backward {

#if ATTUNE_SM90A_CODE

template <class T, class Tile, bool kGateGradients, bool kAdds>
class KeyGradients {
 public:
  using Shared = DkdvShared<Tile>;

  __device__ KeyGradients(const BackwardParams& p, Shared& shared)
      : p_(p), s_(shared), walk_(shared.walk) {}

  /// Of all chunks of the walk.
  __device__ void make_all() {
    for (int n = 0; n < walk_.count; ++n) {
      at_.forget();
      const int stage = s_.stage_ring.stage(n);
      const ChunkGates& gates = s_.gates[s_.gate_ring.stage(n)];
      std::uint32_t read_scores[4][4];  // w_ij (do_i . v_j), rounded
      PairScores<T, Tile, kGateGradients> pairs(p_, s_, at_);
      pairs.make(read_scores, gates, n);
      float dk[kKeys / 2];
      start_dk(dk, stage, n);
      if constexpr (kGateGradients) pairs.put_sums(n);
      finish_dk(dk, gates, n);
      add_chunk(dk, read_scores, stage);
      s_.stage_ring.release_chunk(n);
      write_dk(dk, n);
    }
    if (leads_warpgroup()) bulk_wait<0>();
  }

 private:
  /// Whether two parts of dk are added up.
  __device__ __forceinline__ bool adds() const { return kAdds && p_.stored.dk != nullptr; }

  static constexpr int kKeys = Tile::kKeys;
  static constexpr int kRole = Roles<Tile::kValues>::kScores;

  /// Starts dk = V D^T.
  __device__ __forceinline__ void start_dk(float (&dk)[kKeys / 2], int stage, int n) {
    s_.state_ring.wait_full(n);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Tile::kValues / kDepth; ++i) {
      multiply<T, Major::kK, Major::kMN>(
          dk, along_channels(shared_address(&s_.v[stage]), i),
          along_rows(shared_address(&s_.state), i, sizeof(s_.state[0])), i > 0);
    }
    wgmma_commit();
  }

  /// Scales each row by the decay to the chunk's end.
  __device__ __forceinline__ void finish_dk(float (&dk)[kKeys / 2], const ChunkGates& gates,
                                            int n) {
    const float to_end0 = gates.to_end[at_.row()];
    const float to_end1 = gates.to_end[at_.row() + 8];
    s_.gate_ring.release_chunk(n);
    wgmma_wait<0>();
    wgmma_pin(dk);
    s_.state_ring.release_chunk(n);
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) dk[i] *= i % 4 < 2 ? to_end0 : to_end1;
  }

  __device__ __forceinline__ void add_chunk(float (&dk)[kKeys / 2],
                                            const std::uint32_t (&read_scores)[4][4], int stage) {
    wgmma_pin(dk);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply<T, Major::kMN>(dk, read_scores[i], along_rows(shared_address(&s_.q[stage]), i),
                              true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(dk);
  }

  __device__ __forceinline__ void write_dk(const float (&dk)[kKeys / 2], int n) {
    wait_for_room(adds(), s_.dk_ring, n);
    warpgroup_sync(kRole);  // the copy engine has read the last dk
    store_rows<T>(shared_address(&s_.dk), dk, at_);
    async_proxy_fence();
    warpgroup_sync(kRole);  // all of this one is there
    if (adds()) return hand_over(s_.dk_ring);
#pragma unroll
    for (int panel = 0; panel < kKeys / kPanelChannels; ++panel) {
      const int channel = walk_.key_channel + panel * kPanelChannels;
      write_panel<T>({p_.dk, p_.dk_rows, p_.key_dim, walk_.key_partial, channel},
                     s_.dk.bytes[panel], walk_, n);
    }
  }

  const BackwardParams& p_;
  Shared& s_;
  const ChunkWalk& walk_;
  FragmentLane at_;
};

#endif

}  // namespace attune::cuda::chunk_wgmma::backward
