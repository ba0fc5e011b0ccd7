// The pass over the states of single_token.cuh: sums of both sides' channels from the same loads.
//
// A lane has two columns of a strip of 64. A warp takes eight rows at a time, and asks for the next
// ones before it sums these.
#pragma once

#include "cuda/window/single_token_sums.cuh"

namespace attune::cuda::window {

/// A side's row, in shared memory.
struct TokenRow {
  float* memory;
  int channels;

  __device__ float& read(int i) const { return memory[i]; }
  __device__ float& write(int i) const { return memory[channels + i]; }
  __device__ float& decay(int i) const { return memory[2 * channels + i]; }
  __device__ float* end() const { return memory + 3 * channels; }
};

/// A block's pass. kColumns: which side the columns are of.
template <int kColumns>
class TokenStates {
 public:
  using Tile = float[kRowsAtOnce][kColumnsOfLane];
  /// A lane's elements of both states; zeros where there are none.
  struct Turn {
    Tile state = {};
    Tile change = {};
  };

  __device__ TokenStates(const Params& p, int first_row, int end_row, std::int64_t sequence,
                         std::int64_t head)
      : scale_(p.scale),
        first_row_(first_row),
        end_row_(end_row),
        strip_(warp_of_block() % p.shares.strips),
        group_(warp_of_block() / p.shares.strips),
        step_(p.shares.groups * kRowsAtOnce),
        columns_(p.shares.columns),
        initial_(state_of_head(p.sides[kColumns].initial, sequence, head)),
        gradient_(state_of_head(p.sides[kColumns].final_gradient, sequence, head)),
        initial_gradient_(state_of_head(p.sides[1].initial_gradient, sequence, head)) {
    if constexpr (kColumns == 0) {  // it has values along `k`
      const std::int64_t values = initial_gradient_.k;
      initial_gradient_.k = initial_gradient_.v;
      initial_gradient_.v = values;
    }
  }

  /// Asks for the warp's first rows.
  __device__ Turn first_turn() const { return load(first_of_warp()); }

  /// Leaves the warp's shares of all sums, those of rows by their number in the block, and writes
  /// the gradient of the state before.
  __device__ void pass(Turn next, const TokenRow& columns, const TokenRow& rows,
                       const ShareSums& column_sums, const ShareSums& row_sums) const {
    const Columns own(*this, columns);
    float sums[3][kColumnsOfLane] = {};
#pragma unroll 1
    for (int first = first_of_warp(); first < end_row_; first += step_) {
      Turn turn = next;
      next = load(first + step_);
      take(turn, own, rows, first, row_sums, sums);
    }
#pragma unroll
    for (int c = 0; c < kColumnsOfLane; ++c) {
      if (!has(c)) continue;
#pragma unroll
      for (int of = 0; of < 3; ++of) column_sums.at(group_, of, column(c)) = sums[of][c];
    }
  }

 private:
  /// The columns of this lane.
  struct Columns {
    float read[kColumnsOfLane] = {}, write[kColumnsOfLane] = {}, decay[kColumnsOfLane] = {};

    __device__ Columns(const TokenStates& states, const TokenRow& row) {
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) {
        if (!states.has(c)) continue;
        const int at = states.column(c);
        read[c] = row.read(at), write[c] = row.write(at), decay[c] = row.decay(at);
      }
    }
  };

  template <class View>
  __device__ static View state_of_head(View view, std::int64_t sequence, std::int64_t head) {
    if (view.data != nullptr) view.data += sequence * view.sequence + head * view.head;
    return view;
  }
  __device__ int column(int c) const { return strip_ * kStrip + lane() + c * kWarpSize; }
  __device__ bool has(int c) const { return column(c) < columns_; }
  __device__ int first_of_warp() const { return first_row_ + group_ * kRowsAtOnce; }

  /// Calls visit(i, c, element) for those of a state's rows from `first` on.
  template <class View, class Visit>
  __device__ __forceinline__ void for_each(const View& state, int first, Visit&& visit) const {
    auto* row = state.data + first * state.v + column(0) * state.k;
    const std::int64_t apart = kWarpSize * state.k;
    const int count = end_row_ - first;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) {
        if (i < count && has(c)) visit(i, c, row[c * apart]);
      }
      row += state.v;
    }
  }
  __device__ __forceinline__ void load(Tile& tile, const ConstStateView& from, int first) const {
    if (from.data == nullptr) return;
    for_each(from, first, [&](int i, int c, const float& element) { tile[i][c] = element; });
  }
  __device__ __forceinline__ Turn load(int first) const {
    Turn turn;
    if (first >= end_row_) return turn;
    load(turn.state, initial_, first);
    load(turn.change, gradient_, first);
    return turn;
  }

  /// Adds of(i, c, row, sum) of all elements to sums by column, and leaves those by row: sums
  /// number `which`.
  template <class Of>
  __device__ __forceinline__ void add_up(int which, float (&sums)[kColumnsOfLane], int first,
                                         const ShareSums& row_sums, Of&& of) const {
    float of_rows[2 * kRowsAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int row = min(first + i, end_row_ - 1);
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) of(i, c, row, of_rows[i], sums[c]);
    }
    const float sum = sum_of_lanes<kRowsAtOnce>(of_rows);
    const int mine = first + lane() / 2 % kRowsAtOnce;
    if ((lane() & 17) == 0 && mine < end_row_) row_sums.at(strip_, which, mine - first_row_) = sum;
  }

  __device__ __forceinline__ void take(Turn& turn, const Columns& own, const TokenRow& rows,
                                       int first, const ShareSums& row_sums,
                                       float (&sums)[3][kColumnsOfLane]) const {
    auto& [state, change] = turn;
    if (initial_.data != nullptr) {
      add_up(0, sums[0], first, row_sums,
             [&](int i, int c, int row, float& of_row, float& of_column) {
               of_row = fmaf(state[i][c] * own.decay[c], own.read[c], of_row);
               state[i][c] *= rows.decay(row);
               of_column = fmaf(state[i][c], rows.read(row), of_column);
             });
    }
    if (gradient_.data != nullptr) {
      add_up(1, sums[1], first, row_sums,
             [&](int i, int c, int row, float& of_row, float& of_column) {
               of_row = fmaf(change[i][c], own.write[c], of_row);
               of_column = fmaf(change[i][c], rows.write(row), of_column);
             });
    }
    if (initial_.data != nullptr && gradient_.data != nullptr) {
      add_up(2, sums[2], first, row_sums, [&](int i, int c, int, float& of_row, float& of_column) {
        const float met = state[i][c] * own.decay[c] * change[i][c];
        of_row += met;
        of_column += met;
      });
    }
    if (initial_gradient_.data == nullptr) return;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int row = min(first + i, end_row_ - 1);
      const float read = scale_ * rows.read(row), decay = rows.decay(row);
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) {
        change[i][c] = decay * own.decay[c] * fmaf(read, own.read[c], change[i][c]);
      }
    }
    for_each(initial_gradient_, first,
             [&](int i, int c, float& element) { element = change[i][c]; });
  }

  float scale_;
  int first_row_, end_row_;  // of the block
  int strip_, group_;        // of the warp
  int step_;                 // from a warp's rows to its next ones
  int columns_;
  ConstStateView initial_, gradient_;
  StateView initial_gradient_;
};

}  // namespace attune::cuda::window
