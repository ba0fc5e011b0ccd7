// The gradients of sequences of one token, a block a sequence and head that passes over its states
// once: what a window sums over either side's channels comes from the same loads.
//
// Of the side whose channels lie side by side in the states, the columns, a lane has two of a strip
// of 64. A warp takes eight rows, channels of the other side, at a time. With e the decays, S the
// state before the token and D the gradient of the one after it, each side has, of its channel a,
//
//   x_a = scale e_a sum_b e_b S_ab read_b    y_a = sum_b D_ab write_b    m_a = e_a sum_b e_b S_ab D_ab
//
// and of the side's row, in the terms of window.hpp, the gradients x + D_tt write and y + D_tt read,
// of the gates m + read x, and of the state before e_a e_b (D_ab + scale read_a read_b).
#pragma once

#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/window/tokens.cuh"

namespace attune::cuda::window {

/// A side's row, in shared memory, and sums of its channels by share.
struct TokenRow {
  float* memory;
  int channels;
  int shares;

  __device__ float& read(int i) const { return memory[i]; }
  __device__ float& write(int i) const { return memory[channels + i]; }
  __device__ float& decay(int i) const { return memory[2 * channels + i]; }
  __device__ float* sums() const { return memory + 3 * channels; }  // [shares][3][channels]
  __device__ float* end() const { return sums() + 3 * shares * channels; }
  __device__ float sum(int of, int channel) const {
    float sum = 0.0F;
#pragma unroll 1
    for (int share = 0; share < shares; ++share)
      sum += sums()[(share * 3 + of) * channels + channel];
    return sum;
  }
  /// What the token reads of itself.
  __device__ float dot() const {
    float sum = 0.0F;
    for (int i = lane(); i < channels; i += kWarpSize) sum = fmaf(read(i), write(i), sum);
    return warp_sum(sum);
  }
};

/// kColumns: which side the columns are of.
template <class T, int kColumns>
class SingleToken {
 public:
  __device__ SingleToken(const Params& p, const TokenShares& shares, float* memory,
                         std::int64_t sequence, std::int64_t head)
      : p_(p),
        shares_(shares),
        columns_{memory, shares.columns, shares.groups},
        rows_{columns_.end(), shares.rows, shares.strips},
        sums_of_warps_(rows_.end()),
        sequence_(sequence),
        head_(head),
        batch_(p.sequences.bounds == nullptr ? sequence : 0),
        has_token_(span_of(p.sequences, sequence).length > 0) {}

  /// The token's rows; zeros and decays of 1 where a packed sequence is empty.
  __device__ void stage() const {
    const float shared = shared_decay();
#pragma unroll 1
    for (int s = 0; s < 2; ++s) stage(p_.sides[s], row_of(s), shared);
  }

  /// The warp's shares of all sums, and the gradient of the state before.
  __device__ void pass_states() const {
    const int warp = warp_of_block();
    const int strip = warp % shares_.strips;
    const Side& side = p_.sides[kColumns];
    const ConstStateView initial = state_of(side.initial);
    const ConstStateView gradient = state_of(side.final_gradient);
    if (initial.data == nullptr && gradient.data == nullptr && !writes_gradient()) return;
    const Columns own(columns_, strip);
    float sums[3][kColumnsOfLane] = {};
    for (int first = warp / shares_.strips * kRowsAtOnce; first < shares_.rows;
         first += shares_.groups * kRowsAtOnce) {
      take_rows(initial, gradient, own, first, strip, sums);
    }
    float* const to = columns_.sums() + warp / shares_.strips * 3 * shares_.columns;
#pragma unroll
    for (int c = 0; c < kColumnsOfLane; ++c) {
      if (!own.has(c)) continue;
#pragma unroll
      for (int of = 0; of < 3; ++of) to[of * shares_.columns + own.at(c)] = sums[of][c];
    }
  }

  /// All outputs, of all sums.
  __device__ void finish() const {
    const float shared = shared_decay();
#pragma unroll 1
    for (int s = 0; s < 2; ++s) {
      finish(p_.sides[s], row_of(s), shared, p_.scale * row_of(1 - s).dot());
    }
  }

 private:
  /// The columns of this lane.
  struct Columns {
    int first, count;
    float read[kColumnsOfLane] = {}, write[kColumnsOfLane] = {}, decay[kColumnsOfLane] = {};

    __device__ Columns(const TokenRow& row, int strip)
        : first(strip * kStrip + lane()), count(row.channels) {
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) {
        if (!has(c)) continue;
        read[c] = row.read(at(c)), write[c] = row.write(at(c)), decay[c] = row.decay(at(c));
      }
    }
    __device__ int at(int c) const { return first + c * kWarpSize; }
    __device__ bool has(int c) const { return at(c) < count; }
  };
  using Tile = float[kRowsAtOnce][kColumnsOfLane];

  __device__ TokenRow row_of(int side) const { return side == kColumns ? columns_ : rows_; }
  __device__ bool writes_gradient() const { return p_.sides[1].initial_gradient.data != nullptr; }
  __device__ Block block_of(const Side& side) const {
    return {.p = p_,
            .side = side,
            .shared = nullptr,
            .mine = nullptr,
            .team = 0,
            .warp = 0,
            .warps = 1,
            .sequence = sequence_,
            .head = head_,
            .span = {.batch = batch_, .begin = 0, .length = 1}};
  }
  template <class View>
  __device__ View state_of(View view) const {
    if (view.data != nullptr) view.data += sequence_ * view.sequence + head_ * view.head;
    return view;
  }
  __device__ float shared_decay() const {
    if (!has_token_) return 1.0F;
    const Block at = block_of(p_.sides[0]);
    const GateElement<T> gate(p_.shared_gate, at.offset(p_.shared_gate.rows, 0, head_));
    return exp2_approx((constant_decay(p_.gamma, sequence_, head_) + gate.log()) * kLog2E);
  }

  __device__ void stage(const Side& side, const TokenRow& row, float shared) const {
    const Block at = block_of(side);
    const std::int64_t read_at = at.offset(side.read, 0, head_);
    const std::int64_t write_at = at.offset(side.write, 0, at.shared_head());
    const std::int64_t gate_at = at.offset(side.gate.rows, 0, head_);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < side.channels; i += threads()) {
      const Element<T> read(side.read, side.read.data != nullptr, read_at + i);
      const Element<T> write(side.write, true, write_at + i);
      const GateElement<T> gate(side.gate, gate_at + i);
      row.read(i) = has_token_ ? read.value() : 0.0F;
      row.write(i) = has_token_ ? write.value() : 0.0F;
      row.decay(i) =
          has_token_ ? exp2_approx(gate.log() * kLog2E) * (side.has_shared_decays ? shared : 1.0F)
                     : 1.0F;
    }
  }

  __device__ void finish(const Side& side, const TokenRow& row, float shared, float score) const {
    const Block at = block_of(side);
    const bool has_past = side.initial.data != nullptr;
    const bool has_gradient = side.final_gradient.data != nullptr;
    float shared_gradient = 0.0F;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < side.channels; i += threads()) {
      const float read = row.read(i), write = row.write(i), decay = row.decay(i);
      const float x = has_past ? p_.scale * decay * row.sum(0, i) : 0.0F;
      const float y = has_gradient ? row.sum(1, i) : 0.0F;
      float gate = read * x;
      if (has_past && has_gradient) gate += row.sum(2, i);
      // Nothing passes a reset, and there is none without a token.
      if (!has_past || !has_token_ || decay * shared == 0.0F) gate = 0.0F;
      shared_gradient += gate;
      if (has_token_) {
        put(side, at, i, fmaf(score, write, x), fmaf(score, read, y), gate);
      } else {
        put(side, at, i, 0.0F, 0.0F, 0.0F);  // a row behind the last sequence
      }
    }
    if (side.has_shared_decays && side.wants_gates) put_shared(side, at, shared_gradient);
  }

  /// Calls visit(i, c, offset) for the elements of rows from `first` on, in a state with strides
  /// `down` and `across`.
  template <class Visit>
  __device__ __forceinline__ void for_each(const Columns& own, int first, std::int64_t down,
                                           std::int64_t across, Visit&& visit) const {
    std::int64_t at = first * down + own.first * across;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) {
        if (first + i < shares_.rows && own.has(c)) visit(i, c, at + c * kWarpSize * across);
      }
      at += down;
    }
  }
  __device__ __forceinline__ void load(Tile& tile, const ConstStateView& from, const Columns& own,
                                       int first) const {
    if (from.data == nullptr) return;
    for_each(own, first, from.v, from.k,
             [&](int i, int c, std::int64_t at) { tile[i][c] = from.data[at]; });
  }

  /// Adds of(i, c, row, sum) of all elements to sums by column, and leaves those by row: sums
  /// number `which`.
  template <class Of>
  __device__ __forceinline__ void add_up(int which, float (&sums)[kColumnsOfLane], int first,
                                         int strip, Of&& of) const {
    float of_rows[2 * kRowsAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int row = min(first + i, shares_.rows - 1);
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) of(i, c, row, of_rows[i], sums[c]);
    }
    const float sum = sum_of_lanes<kRowsAtOnce>(of_rows);
    const int mine = first + lane() / 2 % kRowsAtOnce;
    if ((lane() & 17) == 0 && mine < shares_.rows) {
      rows_.sums()[(strip * 3 + which) * shares_.rows + mine] = sum;
    }
  }

  __device__ __forceinline__ void take_rows(const ConstStateView& initial,
                                            const ConstStateView& gradient, const Columns& own,
                                            int first, int strip,
                                            float (&sums)[3][kColumnsOfLane]) const {
    Tile state = {};
    Tile change = {};
    load(state, initial, own, first);
    load(change, gradient, own, first);
    if (initial.data != nullptr) {
      add_up(0, sums[0], first, strip, [&](int i, int c, int row, float& of_row, float& of_column) {
        of_row = fmaf(state[i][c] * own.decay[c], own.read[c], of_row);
        state[i][c] *= rows_.decay(row);
        of_column = fmaf(state[i][c], rows_.read(row), of_column);
      });
    }
    if (gradient.data != nullptr) {
      add_up(1, sums[1], first, strip, [&](int i, int c, int row, float& of_row, float& of_column) {
        of_row = fmaf(change[i][c], own.write[c], of_row);
        of_column = fmaf(change[i][c], rows_.write(row), of_column);
      });
    }
    if (initial.data != nullptr && gradient.data != nullptr) {
      add_up(2, sums[2], first, strip, [&](int i, int c, int, float& of_row, float& of_column) {
        const float met = state[i][c] * own.decay[c] * change[i][c];
        of_row += met;
        of_column += met;
      });
    }
    store_gradient(change, own, first);
  }
  __device__ __forceinline__ void store_gradient(const Tile& change, const Columns& own,
                                                 int first) const {
    if (!writes_gradient()) return;
    const StateView to = state_of(p_.sides[1].initial_gradient);  // values along `k`
    for_each(own, first, kColumns == 1 ? to.v : to.k, kColumns == 1 ? to.k : to.v,
             [&](int i, int c, std::int64_t at) {
               const int row = first + i;
               to.data[at] = rows_.decay(row) * own.decay[c] *
                             fmaf(p_.scale * rows_.read(row), own.read[c], change[i][c]);
             });
  }

  __device__ void put(const Side& side, const Block& at, int channel, float x, float y,
                      float gate) const {
    const auto store = [&]<class To>(To, const TokenView& view, float value) {
      if (view.data == nullptr) return;
      static_cast<To*>(view.data)[at.offset(view, 0, head_) + channel] = from_float<To>(value);
    };
    store(T(), side.x, x);
    store(float(), side.gate_gradient, gate);
    if (side.y_of_heads != nullptr) {
      side.y_of_heads[at.row_of(0) * side.channels + channel] = y;
    } else {
      store(T(), side.y, y);
    }
  }
  /// The sum over all threads.
  __device__ void put_shared(const Side& side, const Block& at, float gradient) const {
    gradient = warp_sum(gradient);
    if (lane() == 0) sums_of_warps_[warp_of_block()] = gradient;
    __syncthreads();  // all warps' sums are there
    if (threadIdx.x != 0) return;
    float sum = 0.0F;
    for (int warp = 0; warp < shares_.warps(); ++warp) sum += sums_of_warps_[warp];
    if (side.gamma_terms != nullptr) side.gamma_terms[sequence_ * p_.heads + head_] = sum;
    if (side.shared_gradient.data == nullptr) return;
    static_cast<float*>(side.shared_gradient.data)[at.offset(side.shared_gradient, 0, head_)] = sum;
  }

  const Params& p_;
  TokenShares shares_;
  TokenRow columns_, rows_;
  float* sums_of_warps_;
  std::int64_t sequence_;
  std::int64_t head_;
  std::int64_t batch_;
  bool has_token_;
};

/// A block a sequence and head.
template <class T, int kColumns>
__global__ __launch_bounds__(kMostWarpsOfToken* kWarpSize) void take_single_tokens(
    const __grid_constant__ Params p) {
  extern __shared__ float4 shared[];
  const std::int64_t number = block_number();
  const std::int64_t sequence = quotient(number, p.heads);
  const TokenShares shares(p.sides[1 - kColumns].channels, p.sides[kColumns].channels);
  take_over_from_previous_launch();
  if (number >= p.sequence_count * p.heads) return;
  const SingleToken<T, kColumns> token(p, shares, reinterpret_cast<float*>(shared), sequence,
                                       number - sequence * p.heads);
  token.stage();
  __syncthreads();  // both sides' rows are there
  token.pass_states();
  __syncthreads();  // all sums are there
  token.finish();
}

/// The side whose channels lie side by side in the states.
inline int column_side(const Params& p) {
  const Side& keys = p.sides[0];
  const bool has_gradient = keys.final_gradient.data != nullptr;
  const ConstStateView& any = has_gradient ? keys.final_gradient : keys.initial;
  return any.data != nullptr && any.k < any.v ? 0 : 1;
}

template <class T>
void launch_single_tokens(const Params& p, cudaStream_t stream) {
  with_value<0, 1>(column_side(p), [&]<int kColumns>() {
    const TokenShares shares(p.sides[1 - kColumns].channels, p.sides[kColumns].channels);
    launch<take_single_tokens<T, kColumns>>(
        {.grid = grid_of(p.sequence_count * p.heads),
         .block = static_cast<unsigned>(shares.warps() * kWarpSize),
         .shared_bytes = shares.floats() * sizeof(float),
         .overlaps_previous = true},
        stream, p);
  });
}

}  // namespace attune::cuda::window
