// The launch before the walk: of each chunk of 64 tokens of a head, what reads the state before it and
// what is written to the state after it, the chunk's decay, and what its tokens read of one another.
//
// By channel, with G the sums of log decays (base 2) from the chunk's start to a token:
//
//   q'_i = scale 2^G_i q_i   k'_j = 2^(G_end - G_j) k_j   P_ij = scale sum 2^(G_i - G_j) q_i k_j
//
// P is a product of matrices where a sum R between G_i and G_j can be taken out: 2^(G_i - R) q_i and
// 2^(R - G_j) k_j. That of half the chunk does for all pairs, unless decays are strong. Then tokens
// in the second half of 64, 32, ..., 2 of them read those in the first by the sum at the middle of
// these, a product for each, in which no factor exceeds 1; and each token reads itself.
//
// Tiles hold zeros where there is no token and no channel.
#pragma once

#include "cuda/chunks/segment_walk.cuh"
#include "cuda/gla/exact_runs.cuh"
#include "cuda/gla/forward/row_copies.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla::forward {

/// Positions of a chunk, and of a panel of channels.
struct OperandsShared {
  static constexpr int kBuffers = 2;
  TokenTile<kPanelChannels> queries[kBuffers], keys[kBuffers];  // then scaled
  TokenTile<kPanelChannels> scores;                             // by row
  float2 logs_over[kBlockWarps][kWarpSize];
  HeadChunk chunk;
};

#if ATTUNE_SM90A_CODE

/// A block's work. A warp has 16 tokens that read by 32 that are read of the scores.
template <class T>
class ChunkOperands {
 public:
  __device__ ChunkOperands(const GlaParams& p, OperandsShared& shared)
      : p_(p),
        s_(shared),
        chunk_(shared.chunk),
        queries_(p.x, shared.chunk, shared.chunk.head),
        keys_(p.y, shared.chunk, shared.chunk.kv_head),
        // Then gates are loaded without a question.
        has_whole_gates_(p.gate_in_pairs && shared.chunk.rows == kChunkTokens && !p.g.given() &&
                         p.gamma.source == ops::ConstantDecay::Source::kNone) {}

  /// Starts on the first panel.
  __device__ void begin() {
    start_panel(0);
    load_gates(0);
  }
  /// Rows have been started on; starts on the next panel's.
  __device__ void take_panel(int panel) {
    const int channel = panel * kPanelChannels + at_.channel();
    const unsigned valid = valid_positions(chunk_, at_, channel < p_.own);
    const int buffer = panel % OperandsShared::kBuffers;
    const auto queries = positions_of(s_.queries[buffer].bytes[0], at_);
    const auto keys = positions_of(s_.keys[buffer].bytes[0], at_);
    float2 sums[kRun];
    if (has_whole_gates(panel)) {
      take_gates(sums);
    } else {
      load_log_decays<T>(sums, p_, chunk_, at_, channel, valid);
    }
    add_up(sums);
    s_.logs_over[at_.warp][at_.lane] = sums[kRun - 1];
    copy_async_wait<0>();
    queries_.finish(s_.queries[buffer], panel * kPanelChannels, p_.own);
    keys_.finish(s_.keys[buffer], panel * kPanelChannels, p_.own);
    __syncthreads();  // all rows and warps' sums are there, and the other tiles are free
    start_panel(panel + 1);
    load_gates(panel + 1);
    float2 before{0.0F, 0.0F};
    float2 middle{0.0F, 0.0F};
    float2 total{0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp == kBlockWarps / 2) middle = total;
      if (warp == at_.warp) before = total;
      add(total, s_.logs_over[warp][at_.lane]);
    }
    const float2 rest = minus(total, middle);
    const bool is_weak = middle.x >= kStrongDecay && middle.y >= kStrongDecay &&
                         rest.x >= kStrongDecay && rest.y >= kStrongDecay;  // not of a NaN
    if (at_.warp == 0) {
      *reinterpret_cast<float2*>(&p_.total_decay[chunk_.index * own_channels(p_) + channel]) =
          exp2_of(total);
    }
    const RunTile<unsigned char*> to = workspace_rows(panel);
    if (__all_sync(kFullWarp, is_weak) != 0) {  // for all warps alike
      add_to_all(sums, minus(before, middle));
      const float2 of_reads = times({p_.scale, p_.scale}, exp2_of(middle));
      const float2 of_writes = exp2_of(rest);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const float2 read = times(exp2_of(sums[i]), get(queries.row(i)));
        const float2 written = times(exp2_of(minus({}, sums[i])), get(keys.row(i)));
        put(queries.row(i), read);
        put(keys.row(i), written);
        put(to.row(i), times(of_reads, read));
        put(to.row(i) + kPanelBytes, times(of_writes, written));
      }
      __syncthreads();  // all scaled rows are there
      multiply(scores_, buffer);
    } else {
      add_to_all(sums, before);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const float2 since = times({p_.scale, p_.scale}, exp2_of(sums[i]));
        put(to.row(i), times(since, get(queries.row(i))));
        put(to.row(i) + kPanelBytes, times(exp2_of(minus(total, sums[i])), get(keys.row(i))));
      }
      add_strong_scores(sums, buffer, channel, valid);
    }
  }

  /// Writes the scores, after all panels.
  __device__ void put_scores() {
    unsigned char* const panel = s_.scores.bytes[0];
    for_each_pair([&](int n, int half, int e, int i, int j) {
      const float low = j <= i ? scores_[n][half][e] * p_.score_scale : 0.0F;
      const float high = j < i ? scores_[n][half][e + 1] * p_.score_scale : 0.0F;
      const int row = chunk_.row(i);
      const int column = chunk_.reverse ? chunk_.row(j + 1) : j;
      *reinterpret_cast<std::uint32_t*>(panel + tile_byte(row, column)) =
          chunk_.reverse ? pack<T>(high, low) : pack<T>(low, high);
    });
    async_proxy_fence();
    __syncthreads();  // all scores are there
    if (threadIdx.x != 0) return;
    bulk_store(workspace_panel(p_.scores, chunk_.index, 1), shared_address(panel), kPanelBytes);
    bulk_commit();
    bulk_wait_read<0>();
  }

 private:
  static constexpr int kColumns = 2;  // blocks of 16 tokens that are read
  using WarpScores = float[kColumns][2][4];

  /// Starts to copy the rows of a panel, if there is one.
  __device__ void start_panel(int panel) {
    const int first = panel * kPanelChannels;
    if (first < own_channels(p_)) {
      const int buffer = panel % OperandsShared::kBuffers;
      queries_.start(s_.queries[buffer], first, p_.own);
      keys_.start(s_.keys[buffer], first, p_.own);
    }
    copy_async_commit();
  }

  /// Whether a panel's gates are loaded ahead.
  __device__ __forceinline__ bool has_whole_gates(int panel) const {
    return has_whole_gates_ && (panel + 1) * kPanelChannels <= p_.own;
  }
  /// Of a panel that has such gates, if there is one.
  __device__ __forceinline__ void load_gates(int panel) {
    if (!has_whole_gates(panel)) return;
    const int channel = panel * kPanelChannels + at_.channel();
    if (p_.channel_gate.is_f32) {
      const RunRows<const float> rows(p_.channel_gate.rows, chunk_, at_, channel);
#pragma unroll
      for (int i = 0; i < kRun; ++i) gates_[i] = *reinterpret_cast<const uint2*>(rows.row(i));
    } else {
      const RunRows<const T> rows(p_.channel_gate.rows, chunk_, at_, channel);
#pragma unroll
      for (int i = 0; i < kRun; ++i)
        gates_[i].x = *reinterpret_cast<const std::uint32_t*>(rows.row(i));
    }
  }
  /// As log decays, base 2.
  __device__ __forceinline__ void take_gates(float2 (&logs)[kRun]) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float2 gate = p_.channel_gate.is_f32
                              ? float2{__uint_as_float(gates_[i].x), __uint_as_float(gates_[i].y)}
                              : unpack<T>(gates_[i].x);
      logs[i] = times({kLog2E, kLog2E}, gate);
    }
  }

  __device__ static __forceinline__ float2 minus(float2 a, float2 b) {
    return {a.x - b.x, a.y - b.y};
  }
  /// Makes log decays the sums from this warp's first position on. A decay of -inf is an exact 0,
  /// and the sums behind it are numbers.
  __device__ static __forceinline__ void add_up(float2 (&logs)[kRun]) {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (float2& log : logs) {
      add(sum, {log.x < kReset ? kReset : log.x, log.y < kReset ? kReset : log.y});
      log = sum;
    }
  }
  /// The sum of log decays over the positions of the first `warps` warps.
  __device__ __forceinline__ float2 over_warps_before(int warps) const {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp < warps) add(sum, s_.logs_over[warp][at_.lane]);
    }
    return sum;
  }

  __device__ static __forceinline__ void add_to_all(float2 (&sums)[kRun], float2 x) {
#pragma unroll
    for (float2& sum : sums) add(sum, x);
  }

  /// Of this thread's channels in the workspace, whose keys lie a panel behind the queries.
  __device__ __forceinline__ RunTile<unsigned char*> workspace_rows(int panel) const {
    return rows_of(workspace_panel(p_.x_from_start, chunk_.index,
                                   2 * own_channels(p_) / kPanelChannels, 2 * panel),
                   at_.channel(), chunk_, at_);
  }
  __device__ static __forceinline__ void put(unsigned char* row, float2 pair) {
    *reinterpret_cast<std::uint32_t*>(row) = pack<T>(pair.x, pair.y);
  }

  __device__ static __forceinline__ float2 get(const void* row) {
    return unpack<T>(*static_cast<const std::uint32_t*>(row));
  }

  /// Two elements of a tensor, or one.
  __device__ static __forceinline__ float2 get(const T* row, bool has_second) {
    return has_second ? get(row) : float2{to_float(*row), 0.0F};
  }

  /// Adds what the tiles' tokens read of those that come no later, and of some that do.
  __device__ __forceinline__ void multiply(WarpScores& to, int buffer) const {
    const std::uint32_t queries = shared_address(&s_.queries[buffer]);
    const std::uint32_t keys = shared_address(&s_.keys[buffer]);
#pragma unroll
    for (int step = 0; step < kPanelChannels / kBlock; ++step) {
      std::uint32_t left[4];
      load_left<false>(left, queries, at_.lane, row(), step * kBlock);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        if (column(n) > row()) continue;
        std::uint32_t right[4];
        load_right_rows(right, keys, at_.lane, column(n), step * kBlock);
        multiply_block<T>(to[n], left, right);
      }
    }
  }

  /// Rows are loaded again for each product, which takes the tiles' room.
  __device__ __forceinline__ void add_strong_scores(const float2 (&sums)[kRun], int buffer,
                                                    int channel, unsigned valid) {
    static_assert(kRun == 8);
    const RunRows<const T> q(p_.x, chunk_, at_, channel);
    const RunRows<const T> k(p_.y, chunk_, chunk_.kv_head, at_, channel);
    const auto queries = positions_of(s_.queries[buffer].bytes[0], at_);
    const auto keys = positions_of(s_.keys[buffer].bytes[0], at_);
    const bool second = channel + 1 < p_.own;
#pragma unroll 1
    for (int half = kChunkTokens / 2; half >= 0; half = half > 1 ? half / 2 : half - 1) {
      const float2 middle = over_warps_before(((at_.position(0) & -2 * half) | half) / kRun);
      __syncthreads();  // the tiles are free
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const bool exists = (valid >> i & 1U) != 0;
        const float2 since = minus(sums[i], half >= kRun ? middle
                                            : half == 4  ? sums[3]
                                            : half == 2  ? sums[i / 4 * 4 + 1]
                                            : half == 1  ? sums[i / 2 * 2]
                                                         : sums[i]);
        put(queries.row(i), times(exp2_of(since), exists ? get(q.row(i), second) : float2{}));
        put(keys.row(i),
            times(exp2_of(minus({}, since)), exists ? get(k.row(i), second) : float2{}));
      }
      __syncthreads();  // all rows are there
      WarpScores read = {};
      multiply(read, buffer);
      for_each_pair([&](int n, int block, int e, int i, int j) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          // In one run of twice as many tokens, in its second half and in the first.
          const bool is_read = half == 0 ? i == j + next
                                         : ((i ^ (j + next)) & -2 * half) == 0 && (i & half) != 0 &&
                                               ((j + next) & half) == 0;
          if (is_read) scores_[n][block][e + next] += read[n][block][e + next];
        }
      });
    }
  }

  __device__ int row() const { return at_.warp / 2 * kBlock; }
  __device__ int column(int n) const { return (at_.warp % 2 * kColumns + n) * kBlock; }
  /// Calls visit(n, block, e, i, j) for this thread's pairs of scores: elements e and e + 1 of the
  /// token at position i, which reads, with those at j and j + 1.
  template <class Visit>
  __device__ __forceinline__ void for_each_pair(Visit&& visit) const {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          visit(n, block, e, row() + at_.lane / 4 + e / 2 * 8,
                column(n) + block * 8 + at_.lane % 4 * 2);
        }
      }
    }
  }

  const GlaParams& p_;
  OperandsShared& s_;
  const HeadChunk& chunk_;
  const RowCopies<T> queries_, keys_;
  const bool has_whole_gates_;
  RunLane at_;
  uint2 gates_[kRun] = {};  // pairs of the next panel's, of 16 bits in the first word
  WarpScores scores_ = {};
};

#endif

/// A block per chunk and head.
template <class T>
__global__ __launch_bounds__(kBlockThreads,
                             2) void chunk_operands(const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  __shared__ OperandsShared shared;
  take_over_from_previous_launch();
  if (threadIdx.x == 0) shared.chunk = head_chunk(p, chunk_of_block(p, blockIdx.x));
  __syncthreads();  // the chunk is known
  if (shared.chunk.rows == 0) return;
  ChunkOperands<T> operands(p, shared);
  operands.begin();
#pragma unroll 1
  for (int panel = 0; panel < own_channels(p) / kPanelChannels; ++panel) operands.take_panel(panel);
  operands.put_scores();
#endif
}

template <class T>
void launch_operands(const GlaParams& p, cudaStream_t stream) {
  launch<chunk_operands<T>>({.grid = dim3(static_cast<unsigned>(p.slots * p.heads)),
                             .block = dim3(kBlockThreads),
                             .overlaps_previous = true},
                            stream, p);
}

}  // namespace attune::cuda::gla::forward
