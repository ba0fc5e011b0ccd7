// What makes the walk's operands: of each chunk of 64 tokens of a head, what reads the state before it
// and what is written to the state after it, the chunk's decay, and what its tokens read of one
// another.
//
// By channel, with G the sums of log decays (base 2) from the chunk's start to a token, and R = G_end:
//
//   q'_i = scale 2^(G_i - R) q_i   k'_j = 2^(R - G_j) k_j   P_ij = q'_i k'_j summed over channels
//
// of a state that has been decayed to the chunk's end before it is read. Where the decay is strong in
// one of a panel's channels, these read it first, with R = 0 in q', and P is made of tokens in the
// second half of 64, 32, ..., 2 of them that read those in the first, by the sum at the middle of
// these, a product for each, in which no factor exceeds 1; and each token reads itself.
//
// Tiles are by row, as memory has the tokens, and hold zeros where there is no token and no channel. They
// are bf16 for f16, too, as q' may be beyond its range.
#pragma once

#include "cuda/chunks/segment_walk.cuh"
#include "cuda/gla/forward/chunk_scores.cuh"
#include "cuda/gla/forward/row_copies.cuh"

namespace attune::cuda::gla::forward {

/// A decay over a chunk beyond which the inverse might leave no room for inputs; base 2.
inline constexpr float kStrongChunk = -100;

#if ATTUNE_SM90A_CODE

/// The work of a block's first 256 threads.
template <class T, class Shared>
class ChunkOperands : ChunkScores<Shared> {
  using Base = ChunkScores<Shared>;
  using Base::add_to_all, Base::add_up, Base::minus, Base::over_warps_before, Base::sync;
  using Base::at_, Base::own_, Base::left_, Base::right_, Base::p_, Base::s_, Base::scores_;
  using Base::for_each_pair, Base::for_each_stored_pair, Base::multiply, Base::position, Base::put;
  using Base::kRunBytes, Base::kRunStep, Base::kToKeys;
  using typename Base::WarpScores;

 public:
  __device__ ChunkOperands(const GlaParams& p, Shared& shared) : Base(p, shared) {
    copies_gates_ = (Shared::kHasRoomForF32 || !p.channel_gate.is_f32) &&
                    has_whole_pieces(p.channel_gate.rows) && !p.g.given() &&
                    p.gamma.source == ops::ConstantDecay::Source::kNone;
  }

  /// Makes the operands of all chunks that are found.
  __device__ __forceinline__ void make_all() {
    goes_on_ = wait_for_chunk(0);
    if (goes_on_) start_panel(0, 0);
#pragma unroll 1
    while (goes_on_) {
      const unsigned strong = make_chunks();
      if (strong == 0) return;
      add_strong_scores(p_, s_, chunk_, strong, panel_ - 1);
      publish_scores();
    }
  }

 private:
  /// Makes chunks to the last, or to one that has panels of strong decays, which it returns: their
  /// scores are missing.
  __device__ __forceinline__ unsigned make_chunks() {
    const int panels = own_channels(p_) / kPanelChannels;
#pragma unroll 1
    while (goes_on_) {
      unsigned strong = 0;
#pragma unroll 1
      for (int panel = 0; panel < panels; ++panel) {
        const bool is_last = panel + 1 == panels;
        const bool is_weak = take_panel(panel, [&] {
          if (is_last) goes_on_ = wait_for_chunk(chunk_ + 1);
          if (goes_on_) start_panel(chunk_ + (is_last ? 1 : 0), is_last ? 0 : panel + 1);
        });
        if (!is_weak) strong |= 1U << panel;
      }
      put_scores();
      if (strong != 0) return strong;
      publish_scores();
    }
    return 0;
  }
  __device__ __forceinline__ void publish_scores() {
    async_proxy_fence();
    s_.score_ring.publish_chunk(chunk_++);
  }

  /// Whether there is such a chunk.
  __device__ __forceinline__ bool wait_for_chunk(int chunk) {
    s_.chunk_ring.wait_full(chunk);
    return chunk_of(chunk).place.rows > 0;
  }
  __device__ __forceinline__ const typename Shared::Chunk& chunk_of(int chunk) const {
    return s_.chunks[chunk % 2];
  }

  /// Makes a panel, but for scores where its decays are strong, and tells whether they are not. Calls
  /// start_next() where its tiles are free.
  template <class Next>
  __device__ __forceinline__ bool take_panel(int panel, Next&& start_next) {
    // Or all that can be made of these would be, once and for all panels, and fill the registers.
    asm volatile("" : "+r"(own_), "+r"(left_), "+r"(right_));
    const typename Shared::Chunk& of = chunk_of(chunk_);
    const HeadChunk& chunk = of.place;
    const int channel = panel * kPanelChannels + at_.channel();
    const int buffer = panel_ % Shared::kBuffers;
    const std::uint32_t tile = shared_address(&s_.queries[buffer]);
    copy_async_wait<0>();
    finish_panel(of, panel, buffer);
    __syncwarp();  // the warp's rows are there
    float2 sums[kRun];
    if (copies_gates_) {
      take_gates(sums);
    } else {
      load_log_decays<T>(sums, p_, chunk, at_, channel,
                         valid_positions(chunk, at_, channel < p_.own));
    }
    add_up(sums);
    s_.logs_over[at_.warp][at_.lane] = sums[kRun - 1];
    sync();  // all warps' sums are there, and the other tiles are free
    ++panel_;
    start_next();
    float2 before{0.0F, 0.0F};
    float2 total{0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp == at_.warp) before = total;
      add(total, s_.logs_over[warp][at_.lane]);
    }
    const bool is_weak =
        __all_sync(kFullWarp, total.x >= kStrongChunk && total.y >= kStrongChunk) != 0;
    if (at_.warp == 0) {  // is_weak is the same for all warps
      s_.score_ring.wait_empty(chunk_);
      const float2 decay = exp2_of(total);
      *reinterpret_cast<float2*>(&s_.decays[channel]) =
          is_weak ? decay : float2{-decay.x, -decay.y};
    }
    add_to_all(sums, is_weak ? minus(before, total) : before);
    const float2 rest = is_weak ? float2{} : total;
    const std::uint32_t queries = tile + own_;
    std::uint32_t read[kRun], written[kRun];  // all loads before stores, which might be to the same
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      read[i] = load_shared_4(queries ^ i * kRunStep);
      written[i] = load_shared_4((queries ^ i * kRunStep) + kToKeys);
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float2 query = times(exp2_of(sums[i]), unpack<T>(read[i]));
      const float2 key = times(exp2_of(minus(rest, sums[i])), unpack<T>(written[i]));
      put(queries ^ i * kRunStep, times({p_.scale, p_.scale}, query));
      put((queries ^ i * kRunStep) + kToKeys, key);
    }
    async_proxy_fence();
    s_.panel_ring.publish_chunk(panel_ - 1);
    sync();  // all scaled rows are there
    if (is_weak) multiply(scores_, tile);
    return is_weak;
  }

  /// Puts the scores of all panels in their tile; the sums start anew.
  __device__ __forceinline__ void put_scores() {
    s_.score_ring.wait_empty(chunk_);
    for_each_stored_pair([&](std::uint32_t at, float low, float high) {
      store_shared_4(at, pack<Operand>(low, high));
    });
  }
  __device__ __forceinline__ RowCopies<T> queries_of(const typename Shared::Chunk& chunk) const {
    return {chunk.queries, p_.x.token, chunk.place};
  }
  __device__ __forceinline__ RowCopies<T> keys_of(const typename Shared::Chunk& chunk) const {
    return {chunk.keys, p_.y.token, chunk.place};
  }
  template <class Element>
  __device__ __forceinline__ RowCopies<Element> gates_of(
      const typename Shared::Chunk& chunk) const {
    return {chunk.gates, p_.channel_gate.rows.token, chunk.place};
  }

  /// Starts to load a panel.
  __device__ __forceinline__ void start_panel(int chunk, int panel) {
    s_.panel_ring.wait_empty(panel_);
    const typename Shared::Chunk& of = chunk_of(chunk);
    const int buffer = panel_ % Shared::kBuffers;
    const int first = panel * kPanelChannels;
    queries_of(of).start(shared_address(&s_.queries[buffer]), first, p_.own);
    keys_of(of).start(shared_address(&s_.keys[buffer]), first, p_.own);
    if (copies_gates_ && Shared::kHasRoomForF32 && p_.channel_gate.is_f32) {
      gates_of<float>(of).start(shared_address(&s_.gates), first, p_.own);
    } else if (copies_gates_) {
      gates_of<T>(of).start(shared_address(&s_.gates), first, p_.own);
    }
    copy_async_commit();
  }
  /// What is left of it when copies are there.
  __device__ __forceinline__ void finish_panel(const typename Shared::Chunk& of, int panel,
                                               int buffer) {
    const int first = panel * kPanelChannels;
    if (p_.own - first >= kPanelChannels) return;
    queries_of(of).finish(s_.queries[buffer].bytes[0], first, p_.own);
    keys_of(of).finish(s_.keys[buffer].bytes[0], first, p_.own);
    if (copies_gates_ && p_.channel_gate.is_f32) {
      gates_of<float>(of).finish(s_.gates.bytes[0], first, p_.own);
    } else if (copies_gates_) {
      gates_of<T>(of).finish(s_.gates.bytes[0], first, p_.own);
    }
  }
  /// The copied gates as log decays, base 2.
  __device__ __forceinline__ void take_gates(float2 (&logs)[kRun]) const {
    const std::uint32_t gates = shared_address(&s_.gates);
    if (p_.channel_gate.is_f32) {
      const auto lane = static_cast<std::uint32_t>(at_.lane);
      const std::uint32_t run = own_ & ~(kRunBytes - 1);
      const std::uint32_t flip = p_.reverse ? (kRun - 1) * kRunStep : 0;
      const std::uint32_t own = gates + run + lane / 16 * kPanelBytes + (lane % 16 * 8 ^ flip);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        std::uint32_t gate[2];
        load_shared_words(gate, own ^ i * kRunStep);
        logs[i] = {__uint_as_float(gate[0]), __uint_as_float(gate[1])};
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        logs[i] = unpack<T>(load_shared_4((gates + own_) ^ i * kRunStep));
      }
    }
#pragma unroll
    for (float2& log : logs) log = times({kLog2E, kLog2E}, log);
  }
  /// Whether rows begin at multiples of 16 bytes.
  __device__ bool has_whole_pieces(const ConstTokenView& view) const {
    const int piece = p_.channel_gate.is_f32 ? 4 : 8;
    return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.batch % piece == 0 &&
           view.token % piece == 0 && view.head % piece == 0;
  }

  /// Two elements of a tensor, or one.
  __device__ static __forceinline__ float2 get(const T* row, bool has_second) {
    if (!has_second) return {to_float(*row), 0.0F};
    return unpack<T>(*reinterpret_cast<const std::uint32_t*>(row));
  }

  /// Adds the scores of a chunk's panels with strong decays, with the help of the tiles of its last
  /// panel, the `last`-th.
  __device__ static __forceinline__ void add_strong_scores(const GlaParams& p, Shared& shared,
                                                           int chunk, unsigned panels, int last) {
    ChunkOperands own(p, shared);
    shared.panel_ring.wait_empty(last + Shared::kBuffers);  // they are stored
#pragma unroll 1
    for (int panel = 0; panels >> panel != 0; ++panel) {
      if ((panels >> panel & 1U) != 0) {
        own.add_strong_panel(own.chunk_of(chunk).place, panel, last % Shared::kBuffers);
      }
    }
    own.for_each_stored_pair([&](std::uint32_t at, float low, float high) {
      const float2 others = unpack<Operand>(load_shared_4(at));
      store_shared_4(at, pack<Operand>(others.x + low, others.y + high));
    });
  }
  __device__ __forceinline__ void add_strong_panel(const HeadChunk& chunk, int panel, int buffer) {
    static_assert(kRun == 8);
    const int channel = panel * kPanelChannels + at_.channel();
    const unsigned valid = valid_positions(chunk, at_, channel < p_.own);
    const bool second = channel + 1 < p_.own;
    float2 sums[kRun];
    load_log_decays<T>(sums, p_, chunk, at_, channel, valid);
    add_up(sums);
    s_.logs_over[at_.warp][at_.lane] = sums[kRun - 1];
    sync();  // all warps' sums are there
    add_to_all(sums, over_warps_before(at_.warp));
    RunRows<const T> q(p_.x, chunk, at_, channel);
    RunRows<const T> k(p_.y, chunk, chunk.kv_head, at_, channel);
    const std::uint32_t tile = shared_address(&s_.queries[buffer]);
#pragma unroll 1
    for (int half = kChunkTokens / 2; half >= 0; half = half > 1 ? half / 2 : half - 1) {
      asm volatile("" : "+l"(q.first), "+l"(k.first));  // or all addresses would be in registers
      at_.forget();
      const float2 middle = over_warps_before(((at_.position(0) & -2 * half) | half) / kRun);
      sync();  // the tiles are free
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const bool exists = (valid >> i & 1U) != 0;
        const float2 since = minus(sums[i], half >= kRun ? middle
                                            : half == 4  ? sums[3]
                                            : half == 2  ? sums[i / 4 * 4 + 1]
                                            : half == 1  ? sums[i / 2 * 2]
                                                         : sums[i]);
        const std::uint32_t query = (tile + own_) ^ i * kRunStep;
        put(query, times(exp2_of(since), exists ? get(q.row(i), second) : float2{}));
        put(query + kToKeys,
            times(exp2_of(minus({}, since)), exists ? get(k.row(i), second) : float2{}));
      }
      sync();  // all rows are there
      WarpScores read = {};
      multiply(read, tile);
      for_each_pair([&](int n, int block, int e, int i, int j) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          // In one run of twice as many tokens, in its second half and in the first.
          const int reader = position(i);
          const int written = position(j + next);
          const bool is_read = half == 0 ? reader == written
                                         : ((reader ^ written) & -2 * half) == 0 &&
                                               (reader & half) != 0 && (written & half) == 0;
          if (is_read) scores_[n][block][e + next] += p_.scale * read[n][block][e + next];
        }
      });
    }
  }

  int panel_ = 0;  // the number of the next to be made, of all chunks; and of the chunk
  int chunk_ = 0;
  bool goes_on_ = true;  // there is a next chunk
  bool copies_gates_;    // with other rows
};

#endif

}  // namespace attune::cuda::gla::forward
