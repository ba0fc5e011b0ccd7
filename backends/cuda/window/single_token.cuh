// The gradients of sequences of one token, a block or a cluster of them a sequence and head that
// passes over its states once: what a window sums over either side's channels comes from the same
// loads.
//
// The side whose channels lie side by side in the states has the columns. Of the rows, channels of
// the other side, a cluster's blocks have some each, and finish those by themselves; sums by column
// are added up over the cluster. With e the decays, S the state before the token and D the gradient
// of the one after it, each side has, of its channel a,
//
//   x_a = scale e_a sum_b e_b S_ab read_b    y_a = sum_b D_ab write_b    m_a = e_a sum_b e_b S_ab D_ab
//
// and of the side's row, in the terms of window.hpp, the gradients x + D_tt write and y + D_tt read,
// of the gates m + read x, and of the state before e_a e_b (D_ab + scale read_a read_b).
#pragma once

#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/window/single_token_states.cuh"

namespace attune::cuda::window {

/// Channels of a side.
struct Channels {
  int first, end;
  __device__ int count() const { return end - first; }
};
/// Number `rank` of parts of so many.
__device__ __forceinline__ Channels part_of(int channels, int rank, int of_part) {
  return {min(rank * of_part, channels), min((rank + 1) * of_part, channels)};
}

/// Columns and rows, numbered for threads: a warp's are of one side.
struct ChannelsOfBlock {
  Channels columns, rows;

  struct Channel {
    bool is_row;
    int i;  // the side's first one where there is none of that number
    bool exists;
  };
  __device__ int first_row() const {
    return TokenShares::parts(columns.count(), kWarpSize) * kWarpSize;
  }
  __device__ int count() const { return first_row() + rows.count(); }
  __device__ Channel channel(int number) const {
    const bool is_row = number >= first_row();
    const int first = is_row ? rows.first : columns.first;
    const int i = number - (is_row ? first_row() : 0) + first;
    const bool exists = i < (is_row ? rows.end : columns.end);
    return {is_row, exists ? i : first, exists};
  }
};

/// A block's part. kColumns: which side the columns are of.
template <class T, int kColumns>
class SingleToken {
 public:
  __device__ SingleToken(const Params& p, float* memory, int rank, std::int64_t sequence,
                         std::int64_t head)
      : p_(p),
        own_columns_(part_of(p.shares.columns, rank, p.shares.own_columns)),
        own_rows_(part_of(p.shares.rows, rank, p.shares.own_rows)),
        cluster_(p.shares, rank, memory),
        columns_{cluster_.end(), p.shares.columns},
        rows_{columns_.end(), p.shares.rows},
        column_sums_{rows_.end(), p.shares.columns, p.shares.groups},
        row_sums_{column_sums_.end(), p.shares.own_rows, p.shares.strips},
        sums_of_warps_(row_sums_.end()),
        shared_decay_(sums_of_warps_ + kMostWarpsOfToken),
        states_(p, own_rows_.first, own_rows_.end, sequence, head),
        sequence_(sequence),
        head_(head),
        has_token_(span_of(p.sequences, sequence).length > 0) {}

  /// All of it.
  __device__ void take() const {
    cluster_.open(own_columns_.count());
    // The first rows of states are asked for behind the token's own, and before these are there.
    int number = static_cast<int>(threadIdx.x);
    const Staged staged = ask(number);
    const auto first = states_.first_turn();
    put(staged);
#pragma unroll 1
    while ((number += threads()) < all_channels().count()) put(ask(number));
    __syncthreads();  // both sides' rows are there
    states_.pass(first, columns_, rows_, column_sums_, row_sums_);
    __syncthreads();  // the block's sums are there
    finish(cluster_.exchange(column_sums_));
  }

 private:
  __device__ Block block_of(const Side& side) const {
    return {
        .p = p_,
        .side = side,
        .shared = nullptr,
        .mine = nullptr,
        .team = 0,
        .warp = 0,
        .warps = 1,
        .sequence = sequence_,
        .head = head_,
        .span = {.batch = p_.sequences.bounds == nullptr ? sequence_ : 0, .begin = 0, .length = 1}};
  }
  __device__ ChannelsOfBlock all_channels() const {
    return {{0, columns_.channels}, {0, rows_.channels}};
  }
  __device__ const Side& side_of(bool is_row) const {
    return p_.sides[is_row ? 1 - kColumns : kColumns];
  }

  /// By value: that of one of two members would keep them all in local memory.
  __device__ TokenRow row_of(bool is_row) const {
    return {is_row ? rows_.memory : columns_.memory, is_row ? rows_.channels : columns_.channels};
  }

  /// A channel of the token's rows, on its way.
  struct Staged {
    int number;
    Element<T> read, write;
    GateElement<T> gate, shared_gate;
    float gamma;
  };
  __device__ __forceinline__ Staged ask(int number) const {
    const auto [is_row, i, exists] = all_channels().channel(number);
    const Side& side = side_of(is_row);
    const Block at = block_of(side);
    return {number,
            {side.read, side.read.data != nullptr, at.offset(side.read, 0, head_) + i},
            {side.write, true, at.offset(side.write, 0, at.shared_head()) + i},
            {side.gate, at.offset(side.gate.rows, 0, head_) + i},
            {p_.shared_gate, at.offset(p_.shared_gate.rows, 0, head_)},
            constant_decay(p_.gamma, sequence_, head_)};
  }
  /// Zeros and a decay of 1 where a packed sequence is empty.
  __device__ __forceinline__ void put(const Staged& x) const {
    const auto [is_row, i, exists] = all_channels().channel(x.number);
    if (!exists) return;
    const TokenRow row = row_of(is_row);
    const auto decay = [&](float log) { return has_token_ ? exp2_approx(log * kLog2E) : 1.0F; };
    const float shared = decay(x.gamma + x.shared_gate.log());
    row.read(i) = has_token_ ? x.read.value() : 0.0F;
    row.write(i) = has_token_ ? x.write.value() : 0.0F;
    row.decay(i) = decay(x.gate.log()) * (side_of(is_row).has_shared_decays ? shared : 1.0F);
    if (x.number == 0) *shared_decay_ = shared;
  }

  /// What the token reads of itself on the other side.
  __device__ void score(float& of_rows, float& of_columns) const {
    of_rows = 0.0F, of_columns = 0.0F;
#pragma unroll 2
    for (int i = lane(); i < max(rows_.channels, columns_.channels); i += kWarpSize) {
      if (i < columns_.channels) of_rows = fmaf(columns_.read(i), columns_.write(i), of_rows);
      if (i < rows_.channels) of_columns = fmaf(rows_.read(i), rows_.write(i), of_columns);
    }
    of_rows = p_.scale * warp_sum(of_rows), of_columns = p_.scale * warp_sum(of_columns);
  }

  /// The outputs of the block's own channels. `column_sums`: of its columns.
  __device__ void finish(const ShareSums& column_sums) const {
    float of_rows, of_columns;
    score(of_rows, of_columns);
    float shared_gradient = 0.0F;
    const ChannelsOfBlock own{own_columns_, own_rows_};
#pragma unroll 1
    for (int number = static_cast<int>(threadIdx.x); number < own.count(); number += threads()) {
      const auto [is_row, i, exists] = own.channel(number);
      if (!exists) continue;
      const ShareSums shares{is_row ? row_sums_.memory : column_sums.memory,
                             is_row ? row_sums_.channels : column_sums.channels,
                             is_row ? row_sums_.shares : column_sums.shares};
      const ChannelSums sums = shares.sum(i - (is_row ? own_rows_.first : own_columns_.first));
      const float gate =
          finish(side_of(is_row), row_of(is_row), i, sums, is_row ? of_rows : of_columns);
      if (side_of(is_row).has_shared_decays) shared_gradient += gate;
    }
    const bool wanted =
        p_.gamma_gradient.data != nullptr || p_.sides[0].shared_gradient.data != nullptr;
    if (wanted) put_shared(shared_gradient);
  }
  /// Of one channel: the gradient of its gate.
  __device__ float finish(const Side& side, const TokenRow& row, int i, const ChannelSums& sums,
                          float score) const {
    const Block at = block_of(side);
    const bool has_past = side.initial.data != nullptr;
    const bool has_gradient = side.final_gradient.data != nullptr;
    const float read = row.read(i), write = row.write(i), decay = row.decay(i);
    const float x = has_past ? p_.scale * decay * sums.of[0] : 0.0F;
    const float y = has_gradient ? sums.of[1] : 0.0F;
    float gate = read * x;
    if (has_past && has_gradient) gate += sums.of[2];
    // Nothing passes a reset, and there is none without a token.
    if (!has_past || !has_token_ || decay * *shared_decay_ == 0.0F) gate = 0.0F;
    if (has_token_) {
      put(side, at, i, fmaf(score, write, x), fmaf(score, read, y), gate);
    } else {
      put(side, at, i, 0.0F, 0.0F, 0.0F);  // a row behind the last sequence
    }
    return gate;
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
  /// The sum over all threads of all blocks.
  __device__ void put_shared(float gradient) const {
    gradient = warp_sum(gradient);
    if (lane() == 0) sums_of_warps_[warp_of_block()] = gradient;
    __syncthreads();  // all warps' sums are there
    if (warp_of_block() != 0) return;
    const float of_warp = lane() < threads() / kWarpSize ? sums_of_warps_[lane()] : 0.0F;
    const float of_block = warp_sum(of_warp);
    if (lane() != 0) return;
    const float sum = cluster_.sum_in_first(of_block);
    if (own_rows_.first != 0) return;  // of another block than the first
    if (const StateView& gamma = p_.gamma_gradient; gamma.data != nullptr) {
      gamma.data[sequence_ * gamma.sequence + head_ * gamma.head] = p_.gamma_sign * sum;
    }
    const Side& keys = p_.sides[0];
    if (keys.shared_gradient.data == nullptr) return;
    const Block at = block_of(keys);
    static_cast<float*>(keys.shared_gradient.data)[at.offset(keys.shared_gradient, 0, head_)] = sum;
  }

  const Params& p_;
  Channels own_columns_, own_rows_;
  ClusterSums cluster_;
  TokenRow columns_, rows_;
  ShareSums column_sums_, row_sums_;
  float* sums_of_warps_;
  float* shared_decay_;
  TokenStates<kColumns> states_;
  std::int64_t sequence_;
  std::int64_t head_;
  bool has_token_;
};

/// A block a sequence and head, or a cluster along the grid's z.
template <class T, int kColumns>
__global__ __launch_bounds__(kMostWarpsOfToken* kWarpSize) void take_single_tokens(
    const __grid_constant__ Params p) {
  extern __shared__ float4 shared[];
  const std::int64_t number = block_number();
  const std::int64_t sequence = quotient(number, p.heads);
  take_over_from_previous_launch();
  if (number >= p.sequence_count * p.heads) return;  // so do all blocks of the cluster
  const SingleToken<T, kColumns> token(p, reinterpret_cast<float*>(shared),
                                       static_cast<int>(blockIdx.z), sequence,
                                       number - sequence * p.heads);
  token.take();
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
  const std::int64_t walks = p.sequence_count * p.heads;
  with_value<0, 1>(column_side(p), [&]<int kColumns>() {
    constexpr auto kKernel = take_single_tokens<T, kColumns>;
    const int rows = p.sides[1 - kColumns].channels, columns = p.sides[kColumns].channels;
    int blocks = blocks_of_token(rows, columns, walks, multiprocessor_count());
    if (blocks > 1 && !takes_clusters<kKernel>()) blocks = 1;
    Params with = p;
    with.shares = TokenShares(rows, columns, blocks);
    LaunchShape shape{.grid = grid_of(walks),
                      .block = static_cast<unsigned>(with.shares.warps() * kWarpSize),
                      .shared_bytes = with.shares.floats() * sizeof(float),
                      .overlaps_previous = true};
    shape.grid.z = static_cast<unsigned>(blocks);
    if (blocks > 1) {
      launch_clusters<kKernel>(shape, stream, with);
    } else {
      launch<kKernel>(shape, stream, with);
    }
  });
}

}  // namespace attune::cuda::window
