// The decays that one thread needs, where blocks take tokens by channels: of two neighbouring
// channels over eight tokens; and where accumulators are channels by tokens.
//
// In the first case a block of 256 threads takes 64 tokens by 64 channels: each warp eight
// positions, each lane two channels of all of them.
#pragma once

#include "cuda/gla/chunk.cuh"

namespace attune::cuda::gla {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpSize;
inline constexpr int kRun = kChunkTokens / kBlockWarps;  // positions of a warp
static_assert(kBlockWarps * kRun == kChunkTokens && kWarpSize * 2 == kPanelChannels);

/// Of half a chunk, base 2: with the inverse of a weaker one products of inputs are finite, and
/// with the decay itself they keep their precision.
inline constexpr float kStrongDecay = -80;

/// Where this thread's elements are.
struct RunLane {
  int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  __device__ int position(int i) const { return warp * kRun + i; }
  /// The first of two, of the panel's.
  __device__ int channel() const { return 2 * lane; }
  /// Makes the compiler compute again what it computed from it, and load again: else addresses and
  /// values of all of an unrolled loop would fill the registers at once.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(warp), "+r"(lane)::"memory"); }
};

/// The rows of a tensor at a thread's positions; Element may be const.
template <class Element>
struct RunRows {
  Element* first;
  std::int64_t step;

  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const HeadChunk& chunk, const Place& at,
                                     int channel)
      : RunRows(view, chunk, chunk.head, at, channel) {}
  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const HeadChunk& chunk, std::int64_t head,
                                     const Place& at, int channel)
      : first(static_cast<Element*>(view.data) +
              row_offset(view, chunk.batch, chunk.token + chunk.row(at.position(0)), head) +
              channel),
        step(chunk.reverse ? -view.token : view.token) {
    pin();
  }
  /// Of a tensor of the workspace.
  template <class Place>
  __device__ __forceinline__ RunRows(const ChunkRows& rows, int tensor, const HeadChunk& chunk,
                                     const Place& at, int channel)
      : first(chunk_row<Element>(rows, tensor, chunk.index, chunk.row(at.position(0)), channel)),
        step(chunk.reverse ? -rows.channels : rows.channels) {
    pin();
  }
  __device__ __forceinline__ Element* row(int i) const { return first + i * step; }

 private:
  /// Not to be computed again for each row.
  __device__ __forceinline__ void pin() { asm volatile("" : "+l"(first), "+l"(step)); }
};

/// The bytes of a panel of a tile at this warp's positions and this lane's two channels.
template <class Address>
struct RunTile {
  Address base;       // of the first position's row, which is a multiple of eight
  std::uint32_t at;   // in that row
  std::int32_t step;  // rows are as far apart
  __device__ __forceinline__ Address row(int i) const {
    return base + i * step + (at ^ static_cast<std::uint32_t>(i) * 16U);
  }
};
/// By position, as shared memory has it.
__device__ __forceinline__ RunTile<unsigned char*> positions_of(unsigned char* panel,
                                                                const RunLane& at) {
  constexpr int kRow = kPanelChannels * 2;
  return {panel + at.warp * (kRun * kRow), static_cast<std::uint32_t>(at.lane) * 4U, kRow};
}

/// Bit i: there is a token at this warp's i-th position, and the channel is the tensor's.
__device__ __forceinline__ unsigned valid_positions(const HeadChunk& chunk, const RunLane& at,
                                                    bool has_channel) {
  return has_channel ? chunk.tokens_from<kRun>(at.position(0)) : 0U;
}

/// Two neighbouring elements of each row; zeros where there are none.
template <class T>
__device__ __forceinline__ void load_pairs(std::uint32_t (&pairs)[kRun],
                                           const RunRows<const T>& rows, unsigned valid) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    pairs[i] = 0U;
    if ((valid >> i & 1) != 0) pairs[i] = *reinterpret_cast<const std::uint32_t*>(rows.row(i));
  }
}

/// The same of a gate, whose rows may start anywhere. `second`: 1, or 0 where there is no second
/// channel.
template <class Element>
__device__ __forceinline__ void load_gate_pairs(float2 (&pairs)[kRun],
                                                const RunRows<const Element>& rows, unsigned valid,
                                                bool aligned, int second) {
  struct alignas(2 * sizeof(Element)) Pair {
    Element low, high;
  };
  Pair loaded[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    loaded[i] = {from_float<Element>(0.0F), from_float<Element>(0.0F)};
  }
  if (aligned) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if ((valid >> i & 1) != 0) loaded[i] = *reinterpret_cast<const Pair*>(rows.row(i));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if ((valid >> i & 1) != 0) loaded[i] = {rows.row(i)[0], rows.row(i)[second]};
    }
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) pairs[i] = {to_float(loaded[i].low), to_float(loaded[i].high)};
}

/// A decay that channels share, at each position.
template <class Element>
__device__ __forceinline__ void add_shared_gate(float2 (&logs)[kRun],
                                                const RunRows<const Element>& rows, unsigned valid,
                                                float sign = 1.0F) {
  float shared[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    shared[i] = (valid >> i & 1) != 0 ? to_float(*rows.row(i)) : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    logs[i] = {fmaf(sign, shared[i], logs[i].x), fmaf(sign, shared[i], logs[i].y)};
  }
}

/// What channels share of the log decays of this warp's tokens, natural.
template <class T>
__device__ __forceinline__ void add_shared_decays(float2 (&logs)[kRun], const GlaParams& p,
                                                  const HeadChunk& chunk, const RunLane& at,
                                                  unsigned valid) {
  if (p.g.given() && p.g.is_f32) {
    add_shared_gate<float>(logs, {p.g.rows, chunk, at, 0}, valid);
  } else if (p.g.given()) {
    add_shared_gate<T>(logs, {p.g.rows, chunk, at, 0}, valid);
  }
  if (p.gate_shift != nullptr) {
    const ConstTokenView gate_shift{p.gate_shift, p.sequences.tokens * p.heads, p.heads, 1};
    add_shared_gate<float>(logs, {gate_shift, chunk, at, 0}, valid, p.gate_shift_sign);
  }
  const float constant = constant_decay(p.gamma, chunk.sequence, chunk.head);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const float shared = (valid >> i & 1) != 0 ? constant : 0.0F;
    logs[i] = {logs[i].x + shared, logs[i].y + shared};
  }
}

/// The log decays of this thread's tokens (base 2); 0 where there is no token or no channel.
/// All loads are under way before the first is used.
template <class T>
__device__ __forceinline__ void load_log_decays(float2 (&logs)[kRun], const GlaParams& p,
                                                const HeadChunk& chunk, const RunLane& at,
                                                int channel, unsigned valid) {
  const ConstTokenView& own = p.channel_gate.rows;
  const int second = channel + 1 < p.own ? 1 : 0;
  if (p.channel_gate.is_f32) {
    load_gate_pairs<float>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs, second);
  } else {
    load_gate_pairs<T>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs, second);
  }
  add_shared_decays<T>(logs, p, chunk, at, valid);
#pragma unroll
  for (int i = 0; i < kRun; ++i) logs[i] = {logs[i].x * kLog2E, logs[i].y * kLog2E};
  if (channel + 1 < p.own) return;
#pragma unroll
  for (int i = 0; i < kRun; ++i) logs[i].y = 0.0F;
}

__device__ __forceinline__ float2 exp2_of(float2 logs) {
  return {exp2_approx(logs.x), exp2_approx(logs.y)};
}
__device__ __forceinline__ void add(float2& to, float2 x) {
  to.x += x.x;
  to.y += x.y;
}
__device__ __forceinline__ float2 sum_of(const float2 (&logs)[kRun]) {
  float2 sum = logs[0];
#pragma unroll
  for (int i = 1; i < kRun; ++i) add(sum, logs[i]);
  return sum;
}

/// Products of the warps' decays over [first, last), at most kMost of them.
template <int kMost = kBlockWarps>
__device__ __forceinline__ float2 over_warps(const float2 (&decays)[kBlockWarps][kWarpSize],
                                             int first, int last, int lane) {
  float2 product{1.0F, 1.0F};
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (first + i < last) product = times(product, decays[first + i][lane]);
  }
  return product;
}

// ---- accumulators of channels by tokens
//
// Sums over tokens are cheap where a thread has many of few channels: tiles have their rows
// permuted so that the columns a thread holds are 16 tokens in a row.

/// The reverse of permuted_row().
__device__ __forceinline__ int position_of_row(int row) {
  return row % 8 / 2 * 16 + row / 8 * 2 + row % 2;
}

/// Where this thread's elements of 64 channels are in its warpgroup's accumulators, channels by
/// permuted tokens: two channels, 8 apart, of 16 positions in a row.
struct ColumnLane : FragmentLane {
  int group = warpgroup_of_block();
  __device__ int channel() const { return group * kPanelChannels + row(); }
  __device__ int position(int i) const { return lane() % 4 * 16 + i; }
  /// The element of position(i), of the first or second channel.
  __device__ static constexpr int element(int i, int second) {
    return i / 2 * 4 + second * 2 + i % 2;
  }
};

/// What reads the state, and what is written to it.
enum Side : int { kReads, kWrites };

/// Of this thread's channels and positions.
template <class T>
class ColumnDecays {
 public:
  __device__ ColumnDecays(const GlaParams& p, const HeadChunk& chunk) : p_(p), chunk_(chunk) {}

  /// Of 64 channels of each warpgroup from `first` on.
  __device__ __forceinline__ void load(int first) {
    load_logs(first);
    sum_logs();
  }

  /// Of an element of an accumulator: from the middle of the chunk to a token that reads, or from
  /// one that writes to there.
  template <Side kSide>
  __device__ __forceinline__ float of(int element) const {
    return exp2_approx(kSide == kReads ? logs_[element] : -logs_[element]);
  }
  /// Of the first or second channel: over the first half of the chunk, with the scale, which what
  /// is read decays by; or over the second.
  template <Side kSide>
  __device__ __forceinline__ float over_half(int second) const {
    return half_[kSide][second];
  }

  /// Whether there is a token at the i-th position, or a channel.
  __device__ __forceinline__ bool has(int i) const { return (valid_ >> i & 1U) != 0; }
  __device__ __forceinline__ bool has_channel(int first, int second) const {
    return first + at.channel() + 8 * second < p_.own;
  }
  /// f(i, second, has, element) of this thread's positions and both its channels, of channels from
  /// `first` on: whether there is such a token and channel, and where it is.
  template <class Element, class View, class F>
  __device__ __forceinline__ void for_each_row(const View& view, int first, F&& f) const {
    const unsigned valid[] = {has_channel(first, 0) ? valid_ : 0U,
                              has_channel(first, 1) ? valid_ : 0U};
    const RunRows<Element> rows(view, chunk_, at, first + at.channel());
    Element* row = rows.first;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      f(i, 0, (valid[0] >> i & 1U) != 0, row);
      f(i, 1, (valid[1] >> i & 1U) != 0, row + 8);
      row += rows.step;
    }
  }

  /// Makes the compiler compute again what it would keep: decays and addresses.
  __device__ __forceinline__ void forget() {
    at.forget();
    asm volatile("" : "+r"(valid_)::"memory");
#pragma unroll
    for (int e = 0; e < 32; ++e) asm volatile("" : "+f"(logs_[e])::"memory");
  }

  ColumnLane at;

 private:
  /// Natural log decays; 0 where there is no token, what channels share where there is no channel.
  __device__ __forceinline__ void load_logs(int first) {
    valid_ = chunk_.template tokens_from<16>(at.position(0));
    const ConstTokenView& own = p_.channel_gate.rows;
    if (p_.channel_gate.is_f32) {
      load_gates<float>(own, first);
    } else {
      load_gates<T>(own, first);
    }
    if (p_.g.given() && p_.g.is_f32) {
      add_gate<float>(p_.g.rows, 1.0F);
    } else if (p_.g.given()) {
      add_gate<T>(p_.g.rows, 1.0F);
    }
    if (p_.gate_shift != nullptr) {
      add_gate<float>({p_.gate_shift, p_.sequences.tokens * p_.heads, p_.heads, 1},
                      p_.gate_shift_sign);
    }
    const float constant = constant_decay(p_.gamma, chunk_.sequence, chunk_.head);
    if (constant == 0.0F) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) add_to_both(i, has(i) ? constant : 0.0F);
  }
  template <class Element>
  __device__ __forceinline__ void load_gates(const ConstTokenView& gates, int first) {
    Element loaded[32];  // all loads are under way before the first is used
    for_each_row<const Element>(gates, first, [&](int i, int second, bool has, auto* gate) {
      Element& to = loaded[at.element(i, second)];
      to = from_float<Element>(0.0F);
      if (has) to = *gate;
    });
#pragma unroll
    for (int e = 0; e < 32; ++e) logs_[e] = to_float(loaded[e]);
  }
  /// A decay that channels share.
  template <class Element>
  __device__ __forceinline__ void add_gate(const ConstTokenView& gates, float sign) {
    const RunRows<const Element> rows(gates, chunk_, at, 0);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (has(i)) add_to_both(i, sign * to_float(*rows.row(i)));
    }
  }
  __device__ __forceinline__ void add_to_both(int i, float log) {
    logs_[at.element(i, 0)] += log;
    logs_[at.element(i, 1)] += log;
  }

  /// Makes them sums from the middle of the chunk to each token, base 2, and the total
  /// decays of its halves.
  __device__ __forceinline__ void sum_logs() {
    const int quarter = at.lane() % 4;
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& log = logs_[at.element(i, second)];
        sum = fmaf(log, kLog2E, sum);
        log = sum;
      }
      const float neighbour = __shfl_xor_sync(kFullWarp, sum, 1);
      const float half = sum + neighbour;
      const float opposite = __shfl_xor_sync(kFullWarp, half, 2);
      const float before = quarter == 0   ? -half
                           : quarter == 1 ? -sum
                           : quarter == 2 ? 0.0F
                                          : neighbour;
#pragma unroll
      for (int i = 0; i < 16; ++i) logs_[at.element(i, second)] += before;
      half_[kReads][second] = p_.scale * exp2_approx(quarter < 2 ? half : opposite);
      half_[kWrites][second] = exp2_approx(quarter < 2 ? opposite : half);
    }
  }

  const GlaParams& p_;
  const HeadChunk& chunk_;
  unsigned valid_ = 0;  // bit i: there is a token at this thread's i-th position
  float logs_[32];      // from the middle of the chunk to each token, base 2
  float half_[2][2];
};

}  // namespace attune::cuda::gla
