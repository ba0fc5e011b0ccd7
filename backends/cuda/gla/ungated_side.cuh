// The side without gates, where only one has them: the scores that it makes, and its outputs.
#pragma once

#include <algorithm>

#include "cuda/gla/chunk.cuh"

namespace attune::cuda::gla {

/// So many channels of both tensors, or twice as many of one.
template <int kChannels>
struct UngatedTiles {
  TokenTile<kChannels> u, z;  // by position
};

#if ATTUNE_SM90A_CODE

/// A block of kThreads, of a chunk and head. kD is the most channels of either side, of which
/// kLoaded are there at once.
template <class T, int kD, int kThreads, int kLoaded>
class UngatedSide {
 public:
  /// Channels of outputs at once: 64 for each warpgroup, as far as heads may have as many.
  static constexpr int kStep = std::min(kD, kThreads / kWarpgroupSize * kPanelChannels);
  static constexpr bool kLoadsParts = kLoaded < kD;
  using Tiles = UngatedTiles<kLoaded>;

  __device__ UngatedSide(const GlaParams& p, Tiles& tiles, const HeadChunk& chunk)
      : p_(p), tiles_(tiles), chunk_(chunk) {}

  __device__ void start_loads(int first = 0) const {
    start_rows<T, kThreads, false>(tiles_.u, p_.u, chunk_, chunk_.head, first, p_.other);
    start_rows<T, kThreads, false>(tiles_.z, p_.z, chunk_, chunk_.kv_head, first, p_.other);
  }
  /// Waits for them and all other loads.
  __device__ void finish_loads() const {
    copy_async_commit();
    copy_async_wait<0>();
    async_proxy_fence();
    __syncthreads();  // all rows are there
  }

  /// P, two positions j at a time: f(i, j, P_ij, P_ij+1), 0 where j > i. The first loads are there.
  template <class F>
  __device__ __forceinline__ void make_scores(F&& f) const {
    const bool makes = warpgroup_of_block() == 0;
    if (!kLoadsParts && !makes) return;
    const FragmentLane at;
    float scores[32];
    if (makes) add_scores<false>(scores);
    if constexpr (kLoadsParts) {
#pragma unroll 1
      for (int first = kLoaded; first < p_.other; first += kLoaded) {
        __syncthreads();  // the tiles are free
        start_loads(first);
        finish_loads();
        if (makes) add_scores<true>(scores);
      }
      if (!makes) return;
    }
#pragma unroll
    for (int e = 0; e < 32; e += 2) {
      const int row = at.row() + e % 4 / 2 * 8;
      const int column = e / 4 * 8 + at.column();
      f(row, column, column <= row ? scores[e] * p_.score_scale : 0.0F,
        column + 1 <= row ? scores[e + 1] * p_.score_scale : 0.0F);
    }
  }

  /// Of A by position. At `staged` there is room for as many tiles of kStep channels as own
  /// channels have.
  __device__ void make_outputs(const TokenTile<kPanelChannels>& a, unsigned char* staged,
                               TileLoads& loads) const {
    make_output<Major::kMN>(p_.dz, p_.u, chunk_.head, &tiles_.u, p_.z_flow(0), a, staged, loads);
    if (p_.du.data == nullptr) return;
    make_output<Major::kK>(p_.du, p_.z, chunk_.kv_head, &tiles_.z, p_.u_flow(0), a, staged, loads);
  }

 private:
  using Staged = TokenTile<kStep>;
  static constexpr int kOfOne = 2 * kLoaded;  // channels of one tensor in the place of both

  /// Adds the products of the channels that are there, or begins with them.
  template <bool kAdds>
  __device__ __forceinline__ void add_scores(float (&scores)[32]) const {
    if constexpr (kAdds) wgmma_pin(scores);
    wgmma_fence();
    multiply_rows<T, kLoaded, kAdds>(scores, shared_address(&tiles_.u), shared_address(&tiles_.z));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(scores);
  }

  /// Channels of one tensor from `first` on in the place of both, where not all of both are there.
  __device__ void load_one(const ConstTokenView& from, std::int64_t head, int first) const {
    start_rows<T, kThreads, false>(reinterpret_cast<TokenTile<kOfOne>&>(tiles_), from, chunk_, head,
                                   first, p_.other);
    finish_loads();
  }

  /// dz = A^T u, or du = A z, and the walk's flows, tensors from `flow` on. `tile` has the rows where
  /// all are there.
  template <Major kScores>
  __device__ __forceinline__ void make_output(const TokenView& to, const ConstTokenView& from,
                                              std::int64_t head, const TokenTile<kLoaded>* tile,
                                              int flow, const TokenTile<kPanelChannels>& a,
                                              unsigned char* staged, TileLoads& loads) const {
    const std::uint32_t rows = kLoadsParts ? shared_address(&tiles_) : shared_address(tile);
#pragma unroll 1
    for (int first = 0; first < p_.other; first += kStep) {
      async_proxy_fence();
      __syncthreads();  // the staged rows and those before are free, and A is there
      if (threadIdx.x == 0) start_flows(flow, first, staged, loads);
      if (kLoadsParts && first % kOfOne == 0) load_one(from, head, first);
      const int panel = first % kOfOne / kPanelChannels;
      make_panel<kScores>(rows + static_cast<unsigned>(panel * kPanelBytes), a, staged, loads);
      __syncthreads();  // all rows are there
      write_rows<T, kThreads>(to, *reinterpret_cast<const Staged*>(staged), chunk_, first,
                              p_.other);
    }
  }

  __device__ void start_flows(int flow, int first, unsigned char* staged,
                              const TileLoads& loads) const {
    if (!chunk_.has_flows) return loads.expect(0);
    loads.expect(static_cast<unsigned>(p_.own_tiles * sizeof(Staged)));
#pragma unroll 1
    for (int i = 0; i < p_.own_tiles; ++i) {
      loads.start_tile<kStep>(shared_address(staged + i * sizeof(Staged)), p_.other_rows, flow + i,
                              chunk_, first);
    }
  }

  /// 64 channels of each warpgroup, as far as there are some.
  template <Major kScores>
  __device__ __forceinline__ void make_panel(std::uint32_t tile, const TokenTile<kPanelChannels>& a,
                                             unsigned char* staged, TileLoads& loads) const {
    const int group = warpgroup_of_block();
    if (group * kPanelChannels >= kStep) {
      loads.wait();
      return;
    }
    const auto panel = static_cast<std::uint32_t>(group * kPanelBytes);
    float sums[32];
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPanelChannels / kDepth; ++step) {
      const std::uint64_t scores = kScores == Major::kMN ? along_rows(shared_address(&a), step)
                                                         : along_channels(shared_address(&a), step);
      wgmma_n64<T, Major::kMN, kScores>(sums, along_rows(tile + panel, step), scores, step > 0);
    }
    wgmma_commit();
    loads.wait();
    wgmma_wait<0>();
    wgmma_pin(sums);
    add_flows(sums, shared_address(staged) + panel);
  }

  /// Completes channels by positions and leaves them where their flows are.
  __device__ __forceinline__ void add_flows(float (&sums)[32], std::uint32_t panel) const {
    const FragmentLane at;
#pragma unroll
    for (int step = 0; step < kPanelChannels / kDepth; ++step) {
      const std::uint32_t address =
          columns_address(panel, at, step, [&](int position) { return chunk_.row(position); });
      float* const e = &sums[8 * step];
      add_block(e, address);
#pragma unroll
      for (int tile = 1; tile < kD / kLargeTile; ++tile) {
        if (tile < p_.own_tiles) add_block(e, address + tile * sizeof(Staged));
      }
      store_matrices_transposed(address, pack<T>(e[0], e[1]), pack<T>(e[2], e[3]),
                                pack<T>(e[4], e[5]), pack<T>(e[6], e[7]));
    }
  }
  __device__ __forceinline__ void add_block(float* e, std::uint32_t address) const {
    if (!chunk_.has_flows) return;
    std::uint32_t pairs[4];
    load_matrices_transposed(pairs, address);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = unpack<T>(pairs[i]);
      e[2 * i] += x.x;
      e[2 * i + 1] += x.y;
    }
  }

  const GlaParams& p_;
  Tiles& tiles_;
  const HeadChunk& chunk_;
};

#endif

}  // namespace attune::cuda::gla
