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
//
// Gradients of log decays are sums over the pairs on whose two sides the token is. Over a chunk the
// sums of x'_s . sum_j P y'_j and of y'_s . sum_i P x'_i are equal, as both have the same product,
// of the same rounded factors, for each pair. So they come from what tokens get and give before it
// is rounded, X and Y the sums in brackets above, without cancellation:
//
//   dgate_t = E <S, D> + scale 2^R sum_s x'_s . S u_s + sum_{s < t} (y'_s . Y_s - x'_s . X_s)
#pragma once

#include "cuda/gla/decays.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::gla {

/// Warpgroups of a block that takes a chunk alone. Of wide heads it has too much in shared memory
/// for another block beside it, but where it takes 64 channels at a time: then one waits for its
/// loads while others work.
template <int kD>
inline constexpr int kChunkGroups = kD == kLargeTile ? 2 : 1;
/// Of one that has a multiprocessor for itself, as chunks are few.
template <int kD>
inline constexpr int kPartGroups = kD == kSmallTile ? 1 : 2;

/// kD, 64, 128, 256 or 512, is the most channels of either side.
template <int kD, int kGroups>
struct IntraChunkShared {
  static constexpr int kMost = kD;
  static constexpr int kWarpgroups = kGroups;
  static constexpr int kThreads = kGroups * kWarpgroupSize;
  static constexpr int kPart = kGroups * kPanelChannels;  // channels at once
  static constexpr int kFlowTiles = kD > kLargeTile ? kD / kLargeTile : 1;
  /// Of a multiprocessor, at most.
  static constexpr int kBlocks = kD <= kLargeTile       ? 4 - kGroups
                                 : kGroups > 1          ? 1
                                 : kD <= 2 * kLargeTile ? 3
                                                        : 2;
  /// Of the other side: channels of both its tensors that are there at once.
  static constexpr int kUngated = kD <= kLargeTile ? kD : kGroups > 1 ? 2 * kLargeTile : kLargeTile;
  using Channels = TokenTile<kPart>;

  Channels x, y;                  // then scaled; rows permuted
  Channels flows[2][kFlowTiles];  // of x and y, then dx and dy; by row in memory
  TokenTile<kPanelChannels> p;    // [i][j] permuted
  TokenTile<kPanelChannels> a;    // [i][j]
  alignas(16) float state_products[kFlowTiles][kPart];
  SharedBarrier full;
  HeadChunk chunk;  // here, for few registers are left for it
};

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
  /// Whether channels begin where they are taken, the first ones too: the code is there once.
  static constexpr bool kBeginsAll = !kOnePart && kMost > kStep &&
                                     (kOfBoth || Shared::kUngated < kMost);

  __device__ IntraChunk(const GlaParams& p, Shared& shared, TileLoads& loads)
      : p_(p), s_(shared), chunk_(shared.chunk), loads_(loads), decays_(p, shared.chunk) {}

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
    decays_.load(first);
    copy_async_wait<0>();
    async_proxy_fence();
    __syncthreads();  // all rows are there
  }

  /// Waits for the walks, beside which all before this began, and starts on their flows.
  __device__ void begin_flows() {
    dependency_wait();
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
    scale_channels();
    if (!kOnePart && p_.makes_scores) add_scores(first);
    decays_.forget();
    loads_.wait();
    float terms[32];
    float read[2] = {};
    take_half<0>(terms, read);
    take_half<1>(terms, read);
    decays_.at.forget();
    sum_gate_gradients(terms, read, first);
    const float2 shared = put_gate_gradients(terms, first);
    async_proxy_fence();
    __syncthreads();  // all outputs are there, and x' and y' are free
    if (p_.dx.data != nullptr) {
      write_rows<T, kThreads>(p_.dx, s_.flows[kReads][0], chunk_, first, p_.own);
    }
    write_rows<T, kThreads>(p_.dy, s_.flows[kWrites][0], chunk_, first, p_.own);
    if (shares_gates()) add_shared_gradients(shared);
  }
  /// Only what they add to A.
  __device__ void take_scores(int first) {
    if (kBeginsAll || first > 0) begin_next<false>(first);
    scale_channels();
    add_scores(first);
  }

  /// Makes of what this part's channels have to the gradients of what all share that of all parts.
  /// False for all blocks of a chunk but the last to come here.
  __device__ bool joins_parts() {
    const unsigned parts = gridDim.y - 1;
    if (parts == 1 || !shares_gates()) return parts == 1;
    float* const terms =
        p_.part_terms + chunk_.index * kMostParts * kChunkTokens + threadIdx.x % kChunkTokens;
    if (threadIdx.x < kChunkTokens) terms[blockIdx.y * kChunkTokens] = of_token_;
    __threadfence();
    __syncthreads();  // all terms of this part are there
    const bool came_last =
        threadIdx.x == 0 && atomicAdd(&p_.parts_done[chunk_.index], 1U) + 1 == parts;
    if (__syncthreads_or(came_last ? 1 : 0) == 0) return false;
    __threadfence();
    of_token_ = 0;
    for (unsigned part = 0; part < parts; ++part) of_token_ += __ldcg(terms + part * kChunkTokens);
    return true;
  }
  /// Gradients of what all channels share, after all of them.
  __device__ void put_shared_gradients() {
    const int position = position_of_row(static_cast<int>(threadIdx.x) % kChunkTokens);
    const bool owns = threadIdx.x < kChunkTokens && chunk_.has(position);
    if (owns && p_.dg.data != nullptr) {
      static_cast<float*>(p_.dg.data)[row_offset(
          p_.dg, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head)] = of_token_;
    }
    if (p_.dgamma_terms == nullptr) return;
    const float sum = warp_sum(owns ? of_token_ : 0.0F);
    __syncthreads();  // the scratch is free
    if (decays_.at.lane() == 0) scratch()[threadIdx.x / kWarpSize][0] = sum;
    __syncthreads();  // both warps' sums are there
    if (threadIdx.x == 0) p_.dgamma_terms[chunk_.index] = scratch()[0][0] + scratch()[1][0];
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

  __device__ __forceinline__ void scale_channels() {
    scale<kReads>(s_.x);
    scale<kWrites>(s_.y);
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
  __device__ __forceinline__ void take_half(float (&terms)[32], float (&read)[2]) {
    decays_.forget();
    float x[16];
    float y[16];
    wgmma_fence();
    exchange<Major::kK, kHalf>(x, s_.y);
    exchange<Major::kMN, kHalf>(y, s_.x);
    wgmma_wait<1>();
    wgmma_pin(x);
    finish<kReads, kHalf>(x, read);
    wgmma_wait<0>();
    wgmma_pin(y);
    decays_.forget();
    float unused[2];
    finish<kWrites, kHalf>(y, unused);
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

  // ---- gradients of gates

  /// Makes of the terms of each token's the gradients.
  __device__ __forceinline__ void sum_gate_gradients(float (&terms)[32], const float (&read)[2],
                                                     int first) const {
    const int quarter = decays_.at.lane() % 4;
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& term = terms[decays_.at.element(i, second)];
        const float next = sum + term;
        term = sum;
        sum = next;
      }
      const float last = __shfl_up_sync(kFullWarp, sum, 1, 4);
      if (quarter >= 1) sum += last;
      const float last_two = __shfl_up_sync(kFullWarp, sum, 2, 4);
      if (quarter >= 2) sum += last_two;
      const float before = __shfl_up_sync(kFullWarp, sum, 1, 4);
      const float common = fmaf(decays_.template over_half<kReads>(second), sum_row(read[second]),
                                state_product(decays_.at.channel() + 8 * second)) +
                           (quarter >= 1 ? before : 0.0F);
#pragma unroll
      for (int i = 0; i < 16; ++i) terms[decays_.at.element(i, second)] += common;
    }
  }
  /// E S . D of the chunk and one of the channels that are there, summed over the other side.
  __device__ float state_product(int channel) const {
    if (!chunk_.has_flows) return 0.0F;
    float sum = s_.state_products[0][channel];
#pragma unroll
    for (int tile = 1; tile < Shared::kFlowTiles; ++tile) {
      if (p_.other_tiles == tile) return sum;
      sum += s_.state_products[tile][channel];
    }
    return sum;
  }
  /// Returns sums over the warp's channels, of two permuted rows of this lane's, if channels share
  /// gates.
  __device__ __forceinline__ float2 put_gate_gradients(const float (&gradients)[32],
                                                       int first) const {
    decays_.template for_each_row<float>(p_.dchannel_gate, first,
                                         [&](int i, int second, bool has, float* to) {
                                           if (has) *to = gradients[decays_.at.element(i, second)];
                                         });
    if (!shares_gates()) return {};
    const bool channels[] = {decays_.has_channel(first, 0), decays_.has_channel(first, 1)};
    float sums[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sums[i] = (channels[0] ? gradients[decays_.at.element(i, 0)] : 0.0F) +
                (channels[1] ? gradients[decays_.at.element(i, 1)] : 0.0F);
    }
    return sum_columns(sums, decays_.at);
  }

  __device__ bool shares_gates() const {
    return p_.dg.data != nullptr || p_.dgamma_terms != nullptr;
  }
  /// By warp of the block and permuted row: where y' was.
  __device__ float (*scratch() const)[kChunkTokens] {
    return reinterpret_cast<float(*)[kChunkTokens]>(s_.y.bytes[0]);
  }
  __device__ void add_shared_gradients(float2 of_warp) {
    const auto thread = static_cast<int>(threadIdx.x);
    *reinterpret_cast<float2*>(&scratch()[thread / kWarpSize][2 * decays_.at.lane()]) = of_warp;
    __syncthreads();  // all warps' sums are there
    if (thread >= kChunkTokens) return;
#pragma unroll
    for (int warp = 0; warp < kThreads / kWarpSize; ++warp) of_token_ += scratch()[warp][thread];
  }

  static constexpr int kSteps = kChunkTokens / kDepth;

  const GlaParams& p_;
  Shared& s_;
  const HeadChunk& chunk_;
  TileLoads& loads_;
  ColumnDecays<T> decays_;
  float a_[32];  // of the last warpgroup
  float of_token_ =
      0;  // of the threads of as many permuted rows: the gradient of what channels share
};

#endif

}  // namespace attune::cuda::gla
