// What stays within a chunk: the pairs (read at i, write at j <= i) of its 64 tokens; and from that
// and the walks' flows all outputs, and the gradients of the gates.
//
// By channel, with G the sums of log decays (base 2) in the chunk and R that of its first half:
//
//   x'_i = 2^(G_i - R) x_i   y'_j = 2^(R - G_j) y_j
//   dx_i = 2^(G_i - R) (sum_{j <= i} P_ij y'_j + scale 2^R S u_i)
//   dy_j = 2^(R - G_j) (sum_{i >= j} P_ij x'_i + 2^(G_end - R) D z_j)
//   A_ij = x'_i . y'_j
//
// are products of matrices. x' and y' are bf16, whose exponents are those of fp32. A chunk of which
// a half decays by more than kStrongDecay is for exact_intra_chunk.cuh.
#pragma once

#include "cuda/gla/flow_arrivals.cuh"
#include "cuda/gla/gate_gradients.cuh"
#include "cuda/gla/intra_chunk_shared.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::gla {

#if ATTUNE_SM90A_CODE

/// A block of a warpgroup per 64 channels, of a chunk and head: so many channels of the side with
/// gates at a time. kOfBoth: both sides have them, and A is for the other one's kernel. kOnePart:
/// of so many channels alone, and without A.
template <class T, class SharedTiles, bool kOfBoth, bool kOnePart = false>
class IntraChunk {
 public:
  using Shared = SharedTiles;
  static constexpr int kThreads = Shared::kThreads;
  static constexpr int kStep = Shared::kPart;  // channels taken at once
  static constexpr int kMost = Shared::kMost;
  /// Whether warps without channels leave out what others do: of wide heads few have none, and the code
  /// of those that do is longer than the instruction cache as it is.
  static constexpr bool kLeavesOutWarps = kMost <= 2 * kLargeTile;
  /// Whether channels begin where they are taken, the first ones too: the code is there once.
  static constexpr bool kBeginsAll = !kOnePart && kMost > kStep &&
                                     (kOfBoth || Shared::kUngated < kMost);

  __device__ IntraChunk(const GlaParams& p, Shared& shared, TileLoads& loads)
      : p_(p),
        s_(shared),
        chunk_(shared.chunk),
        loads_(loads),
        decays_(p, shared.chunk),
        gates_(p, shared) {}

  /// The channel that a block takes first.
  __device__ static int first_of_block() {
    return kOnePart ? static_cast<int>(blockIdx.y) * kStep : 0;
  }

  /// Starts on channels, the first ones while other loads are under way, and waits for all of them.
  template <bool kFlows = true>
  __device__ void begin(int first = first_of_block()) {
    start_rows<T, kThreads, true>(s_.x, p_.x, chunk_, chunk_.head, first, p_.own);
    start_rows<T, kThreads, true>(s_.y, p_.y, chunk_, chunk_.kv_head, first, p_.own);
    copy_async_commit();
    if (kFlows) start_flows(first);
    decays_.template load<kLeavesOutWarps>(first);
    copy_async_wait<0>();
    async_proxy_fence();
    __syncthreads();  // all rows are there
  }

  /// Waits for the chunk's flows, beside whose walks all before this began, and starts on them.
  __device__ void begin_flows() {
    wait_for_flows(p_, chunk_);
    dependents_launch();
    if (!kBeginsAll) start_flows(first_of_block());
  }

  /// P of the other side, whose rows are there.
  template <class Other>
  __device__ void make_p(const Other& other) {
    other.make_scores([&](int row, int column, float low, float high) {
      put_pair(s_.p, permuted_row(row), permuted_row(column), pack<Score>(low, high));
    });
  }
  /// P may as well be put there before begin().
  __device__ TokenTile<kPanelChannels>& p() { return s_.p; }

  /// The outputs of channels from `first` on, and what they add to A.
  __device__ void take_channels(int first) {
    if (kBeginsAll || (!kOnePart && first > 0)) begin_next<true>(first);
    const bool has_channels = warp_has_channels(first);
    scale_channels(has_channels);
    if (!kOnePart && p_.makes_scores) add_scores(first);
    decays_.forget();
    loads_.wait();
    float terms[32];
    float read[2] = {};
    take_half<0>(terms, read, has_channels);
    take_half<1>(terms, read, has_channels);
    decays_.at.forget();
    float2 shared{};
    if (has_channels) {
      gates_.sum(decays_, terms, read);
      shared = gates_.put(decays_, terms, first);
    }
    async_proxy_fence();
    __syncthreads();  // all outputs are there, and x' and y' are free
    if (p_.dx.data != nullptr) {
      write_rows<T, kThreads>(p_.dx, s_.flows[kReads][0], chunk_, first, p_.own);
    }
    write_rows<T, kThreads>(p_.dy, s_.flows[kWrites][0], chunk_, first, p_.own);
    gates_.add_shared(decays_.at, shared);
  }
  /// Only what they add to A.
  __device__ void take_scores(int first) {
    if (kBeginsAll || first > 0) begin_next<false>(first);
    scale_channels(warp_has_channels(first));
    add_scores(first);
  }

  /// The gradients of what channels share: after all of them, or a part's, which the last part puts.
  __device__ void put_shared_gradients() { gates_.put_shared(decays_.at); }
  __device__ void put_shared_gradients_of_parts() {
    if (gates_.joins_parts()) put_shared_gradients();
  }

  /// A, after all channels and a barrier: by position, or permuted if kOfBoth.
  __device__ const TokenTile<kPanelChannels>& make_a() const { return s_.a; }
  /// Free by then: room for tiles of kStep channels.
  __device__ unsigned char* staged() { return s_.x.bytes[0]; }

  // All scores are in A and P.
  __device__ void load_diagonal_scores() {}
  __device__ void store_diagonal_scores() const {}

 private:
  using Score = __nv_bfloat16;
  using Channels = typename Shared::Channels;

  template <bool kFlows>
  __device__ void begin_next(int first) {
    async_proxy_fence();
    __syncthreads();  // all tiles but P and A are free
    begin<kFlows>(first);
  }

  /// By all threads. Zeros where there are none: a branch for each would cost registers.
  __device__ void start_flows(int first) const {
    if (!chunk_.has_flows) {
      constexpr int kWords = static_cast<int>(sizeof(Channels) / sizeof(uint4));
      for (int i = unknown_thread(); i < p_.other_tiles * kWords; i += kThreads) {
        reinterpret_cast<uint4*>(s_.flows[kReads])[i] = {};
        reinterpret_cast<uint4*>(s_.flows[kWrites])[i] = {};
      }
      if (threadIdx.x == 0) loads_.expect(0);
      return;
    }
    if (threadIdx.x != 0) return;
    constexpr unsigned kProducts = sizeof(s_.state_products[0]);
    loads_.expect(static_cast<unsigned>(p_.other_tiles) *
                  (2 * static_cast<unsigned>(sizeof(Channels)) + kProducts));
    const float* products = p_.state_products + chunk_.index * own_channels(p_) + first;
#pragma unroll 1
    for (int i = 0; i < p_.other_tiles; ++i) {
      loads_.template start_tile<kStep>(shared_address(&s_.flows[kReads][i]), p_.own_rows,
                                        p_.x_flow(i), chunk_, first);
      loads_.template start_tile<kStep>(shared_address(&s_.flows[kWrites][i]), p_.own_rows,
                                        p_.y_flow(i), chunk_, first);
      loads_.start(shared_address(s_.state_products[i]), products, kProducts);
      products += p_.slots * p_.heads * own_channels(p_);
    }
  }

  // ---- scaled operands, and their products

  __device__ __forceinline__ bool warp_has_channels(int first) const {
    return !kLeavesOutWarps || decays_.warp_has_channels(first);
  }

  __device__ __forceinline__ void scale_channels(bool has_channels) {
    if (has_channels) {
      scale<kReads>(s_.x);
      scale<kWrites>(s_.y);
    }
    async_proxy_fence();
    __syncthreads();  // x', y' and P are there
  }
  template <Side kSide>
  __device__ __forceinline__ void scale(Channels& tile) const {
    const std::uint32_t panel = shared_address(tile.bytes[decays_.at.group]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t address = permuted_address(panel, step);
      std::uint32_t pairs[4];
      load_matrices_transposed(pairs, address);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = unpack<T>(pairs[i]);
        const int e = 8 * step + 2 * i;
        pairs[i] = pack<Score>(x.x * decays_.template of<kSide>(e),
                               x.y * decays_.template of<kSide>(e + 1));
      }
      store_matrices_transposed(address, pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }

  /// Adds to A, or begins it; the last channels complete it.
  __device__ __forceinline__ void add_scores(int first) {
    if (decays_.at.group != Shared::kWarpgroups - 1) return;  // the first one made P
    const std::uint32_t x = shared_address(&s_.x);
    const std::uint32_t y = shared_address(&s_.y);
    if constexpr (kMost > kStep) wgmma_pin(a_);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStep / kDepth; ++step) {
      wgmma_n64<Score, Major::kK, Major::kK>(a_, along_channels(x, step), along_channels(y, step),
                                             step > 0 || first > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(a_);
    if (kStep == kMost || first + kStep >= p_.own) put_a();
  }
  __device__ __forceinline__ void put_a() {
#pragma unroll
    for (int e = 0; e < 32; e += 2) {
      const int row = decays_.at.row() + e % 4 / 2 * 8;
      const int column = e / 4 * 8 + decays_.at.column();
      const int i = position_of_row(row);
      const int j = position_of_row(column);
      const float low = j <= i ? a_[e] * p_.score_scale : 0.0F;
      const float high = j + 1 <= i ? a_[e + 1] * p_.score_scale : 0.0F;
      if constexpr (kOfBoth) {
        put_pair(s_.a, row, column, pack<Score>(low, high));
      } else {
        put_pair(s_.a, i, j, pack<T>(low, high));
      }
    }
  }
  __device__ static __forceinline__ void put_pair(TokenTile<kPanelChannels>& tile, int row,
                                                  int column, std::uint32_t pair) {
    *reinterpret_cast<std::uint32_t*>(tile.bytes[0] + tile_byte(row, column)) = pair;
  }

  // ---- outputs: of half of the columns at a time, for all would not fit the registers

  /// Writes dx and dy of them, leaves their terms of the gates' gradients, and adds what was read.
  template <int kHalf>
  __device__ __forceinline__ void take_half(float (&terms)[32], float (&read)[2],
                                            bool has_channels) {
    decays_.forget();
    float x[16];
    float y[16];
    wgmma_fence();
    exchange<Major::kK, kHalf>(x, s_.y);
    exchange<Major::kMN, kHalf>(y, s_.x);
    wgmma_wait<1>();
    wgmma_pin(x);
    if (has_channels) finish<kReads, kHalf>(x, read);
    wgmma_wait<0>();
    wgmma_pin(y);
    decays_.forget();
    float unused[2];
    if (has_channels) finish<kWrites, kHalf>(y, unused);
#pragma unroll
    for (int e = 0; e < 16; ++e) terms[16 * kHalf + e] = y[e] - x[e];
  }

  /// What tokens get by P, or its transpose, of the other tokens' scaled rows; a group of products.
  template <Major kScores, int kHalf>
  __device__ __forceinline__ void exchange(float (&got)[16], const Channels& from) const {
    constexpr int kColumns = kChunkTokens / 2;
    const std::uint32_t panel = shared_address(from.bytes[decays_.at.group]);
    const std::uint32_t p = shared_address(&s_.p);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t scores = kScores == Major::kK
                                       ? along_channels(p + kHalf * kColumns * 128, step)
                                       : along_rows(p + kHalf * kColumns * 2, step);
      wgmma_n32<Score, Major::kMN, kScores>(got, along_rows(panel, step), scores, step > 0);
    }
    wgmma_commit();
  }

  /// Leaves dx, or dy, where the flows are; makes of what tokens got X, or Y, times x', or y'; and
  /// of reads sums x' times the flows.
  template <Side kSide, int kHalf>
  __device__ __forceinline__ void finish(float (&got)[16], float (&read)[2]) const {
    const std::uint32_t panel =
        shared_address((kSide == kReads ? s_.x : s_.y).bytes[decays_.at.group]);
    const std::uint32_t flows = shared_address(s_.flows[kSide][0].bytes[decays_.at.group]);
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      const int step = kHalf * kSteps / 2 + i;
      std::uint32_t scaled[4];
      load_matrices_transposed(scaled, permuted_address(panel, step));
      const std::uint32_t address = columns_address(
          flows, decays_.at, step, [&](int row) { return chunk_.row(position_of_row(row)); });
      float2 flow[4];
      load_flow(flow, address);
      std::uint32_t out[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float* const e = &got[8 * i + 2 * n];
        const int log = 8 * step + 2 * n;
        const float2 x = unpack<Score>(scaled[n]);
        const float low = fmaf(decays_.template over_half<kSide>(n % 2), flow[n].x, e[0]);
        const float high = fmaf(decays_.template over_half<kSide>(n % 2), flow[n].y, e[1]);
        out[n] = pack<T>(decays_.template of<kSide>(log) * low,
                         decays_.template of<kSide>(log + 1) * high);
        e[0] = x.x * low;
        e[1] = x.y * high;
        if constexpr (kSide == kReads) {
          read[n % 2] = fmaf(x.x, flow[n].x, fmaf(x.y, flow[n].y, read[n % 2]));
        }
      }
      store_matrices_transposed(address, out[0], out[1], out[2], out[3]);
    }
  }
  /// The sum over tiles of the other side.
  __device__ __forceinline__ void load_flow(float2 (&flow)[4], std::uint32_t address) const {
    std::uint32_t pairs[4];
    load_matrices_transposed(pairs, address);
#pragma unroll
    for (int i = 0; i < 4; ++i) flow[i] = unpack<T>(pairs[i]);
    if constexpr (Shared::kFlowTiles > 1) {
#pragma unroll
      for (int tile = 1; tile < Shared::kFlowTiles; ++tile) {
        if (p_.other_tiles == tile) return;
        load_matrices_transposed(pairs, address + tile * sizeof(Channels));
#pragma unroll
        for (int i = 0; i < 4; ++i) add(flow[i], unpack<T>(pairs[i]));
      }
    }
  }
  __device__ __forceinline__ std::uint32_t permuted_address(std::uint32_t panel, int step) const {
    return columns_address(panel, decays_.at, step, [](int row) { return row; });
  }

  static constexpr int kSteps = kChunkTokens / kDepth;

  const GlaParams& p_;
  Shared& s_;
  const HeadChunk& chunk_;
  TileLoads& loads_;
  ColumnDecays<T> decays_;
  GateGradients<T, Shared> gates_;
  float a_[32];  // of the last warpgroup
};

#endif

}  // namespace attune::cuda::gla
