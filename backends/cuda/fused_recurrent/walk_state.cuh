// The state warps of a walk: each keeps a tile of the state in registers, takes it through staged
// tokens, and leaves partial sums of what is read in shared memory.
#pragma once

#include <type_traits>

#include "cuda/fused_recurrent/walk_block.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::fused_recurrent {

/// A lane's tile: rows 8 i + {0, 1} + 2 (its lane along the rows) of its warp's, four columns.
template <class T, int kRows, int kGates>
class StateTile {
 public:
  __device__ StateTile(const WalkShape& shape, const WalkParams& p, const WalkBlock& block)
      : shape_(shape),
        p_(p),
        block_(block),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        row_warp_(warp_ % shape.row_warps),
        row_lane_(static_cast<int>(threadIdx.x) % kWarpSize / kColumnLanes),
        column_quad_(warp_ / shape.row_warps * kColumnLanes +
                     static_cast<int>(threadIdx.x) % kColumnLanes) {}

  /// Loads the state to start from, zeros where there is none and in padding. All loads are in
  /// flight at once.
  __device__ void load() {
    const ConstStateView from = start_of(p_, block_);
    const auto* const zeros = reinterpret_cast<const float*>(&kZeroQuad);
    const float* const first = from.data + offset_of(from);
    const int rows = from.data == nullptr ? 0 : block_.rows;
    if (moves_in_quads(from)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float* const at = row_of(r) < rows ? first + row_offset_of(from, r) : zeros;
        const float4 x = *reinterpret_cast<const float4*>(at);
        state_[r][0] = x.x, state_[r][1] = x.y, state_[r][2] = x.z, state_[r][3] = x.w;
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumnsPerLane; ++c) {
        const bool valid = row_of(r) < rows && column() + c < block_.columns;
        state_[r][c] = *(valid ? first + row_offset_of(from, r) + c * from.v : zeros);
      }
    }
  }

  __device__ void store() const {
    const StateView to = end_of(p_, block_);
    if (to.data == nullptr) return;
    float* const first = to.data + offset_of(to);
    const bool quads = moves_in_quads(to);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row_of(r) >= block_.rows) break;  // rows are in order
      float* const at = first + row_offset_of(to, r);
      if (quads) {
        *reinterpret_cast<float4*>(at) = {state_[r][0], state_[r][1], state_[r][2], state_[r][3]};
        continue;
      }
#pragma unroll
      for (int c = 0; c < kColumnsPerLane; ++c) {
        if (column() + c < block_.columns) at[c * to.v] = state_[r][c];
      }
    }
  }

  /// Takes the tile through the tokens of a buffer, of which there is at least one. A token's sums
  /// are stored behind the next one's loads, which could not be moved up past the store.
  __device__ void advance(int count, float* buffer) {
    const StageLayout layout = stage_layout(shape_, kGates, kExact);
    const int quads = shape_.columns() / kColumnsPerLane;
    const int stride = shape_.row_warps * kRowLanes * quads;
    auto* to = reinterpret_cast<float4*>(buffer + layout.sums) +
               (row_warp_ * kRowLanes + row_lane_) * quads + column_quad_;
    float4 sums = step(0, layout, buffer);
    constexpr int kUnroll = kRows > 8 ? 1 : 2;  // as many as registers allow
#pragma unroll kUnroll
    for (int token = 1; token < count; ++token) {
      const float4 next = step(token, layout, buffer);
      *to = sums;
      to += stride;
      sums = next;
    }
    *to = sums;
  }

  /// Stores the state as a checkpoint.
  __device__ void keep(std::int64_t index) {
    float4* const to = checkpoint_at(index);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      to[r * kWarpSize] = {state_[r][0], state_[r][1], state_[r][2], state_[r][3]};
    }
  }

  /// The products of the state with the one in a checkpoint, summed over the warp's rows.
  __device__ void meet(std::int64_t index) {
    const float4* const from = checkpoint_at(index);
    float sum[kColumnsPerLane] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 x = from[r * kWarpSize];
      sum[0] = fmaf(x.x, state_[r][0], sum[0]);
      sum[1] = fmaf(x.y, state_[r][1], sum[1]);
      sum[2] = fmaf(x.z, state_[r][2], sum[2]);
      sum[3] = fmaf(x.w, state_[r][3], sum[3]);
    }
    const std::int64_t plane = block_.row_block * shape_.row_warps + row_warp_;
    const std::int64_t row =
        (plane * p_.checkpoints.count + base() + index) * p_.heads + block_.head;
    float* const to = p_.checkpoints.products + row * p_.columns + block_.first_column + column();
#pragma unroll
    for (int c = 0; c < kColumnsPerLane; ++c) {
      sum[c] += __shfl_xor_sync(kFullWarp, sum[c], kColumnLanes);
      sum[c] += __shfl_xor_sync(kFullWarp, sum[c], 2 * kColumnLanes);
      if (row_lane_ == 0 && column() + c < block_.columns) to[c] = sum[c];
    }
  }

 private:
  static constexpr bool kExact = std::is_same_v<T, float>;
  static constexpr bool kRowGated = (kGates & kRowGates) != 0;
  static constexpr bool kColumnGated = (kGates & kColumnGates) != 0;
  static_assert(kRows % 2 == 0, "rows are staged in pairs");

  /// The decays of one token's two rows and four columns.
  struct Decays {
    DecayFactor shared;
    float row[2], row_low[2];
    float column[kColumnsPerLane], column_low[kColumnsPerLane];

    __device__ DecayFactor at(int half, int c) const {
      if constexpr (kRowGated && kColumnGated) {
        const float log = row[half] + column[c];
        if constexpr (kExact) return decay_factor(log);
        return {exp2_approx(log), 0.0F};
      } else if constexpr (kRowGated) {
        return {row[half], row_low[half]};
      } else if constexpr (kColumnGated) {
        return {column[c], column_low[c]};
      } else {
        return shared;
      }
    }
  };

  __device__ int column() const { return column_quad_ * kColumnsPerLane; }
  /// The lane's first row, counted in pairs of rows.
  __device__ int first_pair() const { return row_warp_ * kRows / 2 * kRowLanes + row_lane_; }

  __device__ static constexpr int rows_before(int r) { return r / 2 * 2 * kRowLanes + r % 2; }
  __device__ int row_of(int r) const { return first_pair() * 2 + rows_before(r); }

  /// The offset of the lane's first row and column.
  template <class View>
  __device__ std::int64_t offset_of(const View& view) const {
    return block_.head * view.head + (block_.first_row + row_of(0)) * view.k +
           (block_.first_column + column()) * view.v;
  }
  template <class View>
  __device__ static std::int64_t row_offset_of(const View& view, int r) {
    return rows_before(r) * view.k;
  }

  /// Whether the lane's four columns exist, and can be moved at once in every row.
  template <class View>
  __device__ bool moves_in_quads(const View& view) const {
    const auto first = reinterpret_cast<std::uintptr_t>(view.data + offset_of(view));
    return view.v == 1 && view.k % kColumnsPerLane == 0 && first % sizeof(float4) == 0 &&
           column() + kColumnsPerLane <= block_.columns;
  }

  __device__ std::int64_t base() const {
    return first_part(p_.sequences, block_.sequence, block_.span, p_.checkpoints.interval);
  }
  __device__ float4* checkpoint_at(std::int64_t index) const {
    const std::int64_t tile =
        ((base() + index) * p_.heads + block_.head) * block_.tiles + block_.tile;
    const std::int64_t warp = tile * shape_.state_warps() + warp_;
    return reinterpret_cast<float4*>(p_.checkpoints.states) + warp * kRows * kWarpSize +
           static_cast<int>(threadIdx.x) % kWarpSize;
  }

  /// Decays that all of the lane's rows share.
  __device__ void load_column_decays(int token, const StageLayout& layout, const float* buffer,
                                     Decays& decays) const {
    if constexpr (kColumnGated) {
      const int quads = shape_.columns() / kColumnsPerLane;
      const auto* const from = reinterpret_cast<const float4*>(buffer + layout.column_decays) +
                               token * quads + column_quad_;
      const float4 high = *from;
      decays.column[0] = high.x, decays.column[1] = high.y;
      decays.column[2] = high.z, decays.column[3] = high.w;
      if constexpr (kExact && !kRowGated) {
        const float4 low = from[shape_.tokens * quads];
        decays.column_low[0] = low.x, decays.column_low[1] = low.y;
        decays.column_low[2] = low.z, decays.column_low[3] = low.w;
      }
    } else if constexpr (!kRowGated) {
      decays.shared = reinterpret_cast<const DecayFactor*>(buffer + layout.shared_decays)[token];
    }
  }

  __device__ void load_row_decays(const float2* from, Decays& decays) const {
    if constexpr (kRowGated) {
      const float2 high = *from;
      decays.row[0] = high.x, decays.row[1] = high.y;
      if constexpr (kExact && !kColumnGated) {
        const float2 low = from[shape_.tokens * shape_.rows() / 2];
        decays.row_low[0] = low.x, decays.row_low[1] = low.y;
      }
    }
  }

  /// Decays, writes and reads one token; returns the sums over the lane's rows.
  __device__ __forceinline__ float4 step(int token, const StageLayout& layout,
                                         const float* buffer) {
    const int pairs = shape_.rows() / 2;
    const int quads = shape_.columns() / kColumnsPerLane;
    const auto* const from =
        reinterpret_cast<const float4*>(buffer + layout.pairs) + token * pairs + first_pair();
    const auto* const row_decays =
        reinterpret_cast<const float2*>(buffer + layout.row_decays) + token * pairs + first_pair();
    const float4 quad =
        reinterpret_cast<const float4*>(buffer + layout.values)[token * quads + column_quad_];
    const float value[kColumnsPerLane] = {quad.x, quad.y, quad.z, quad.w};
    Decays decays;
    load_column_decays(token, layout, buffer, decays);
    float sum[kColumnsPerLane] = {};
#pragma unroll
    for (int pair = 0; pair < kRows / 2; ++pair) {
      const float4 x = from[pair * kRowLanes];
      load_row_decays(row_decays + pair * kRowLanes, decays);
      write_and_read(state_[2 * pair], decays, 0, x.x, x.y, value, sum);
      write_and_read(state_[2 * pair + 1], decays, 1, x.z, x.w, value, sum);
    }
    return {sum[0], sum[1], sum[2], sum[3]};
  }

  __device__ __forceinline__ void write_and_read(float (&row)[kColumnsPerLane],
                                                 const Decays& decays, int half, float write,
                                                 float read, const float (&value)[kColumnsPerLane],
                                                 float (&sum)[kColumnsPerLane]) const {
#pragma unroll
    for (int c = 0; c < kColumnsPerLane; ++c) {
      const DecayFactor decay = decays.at(half, c);
      float added = write * value[c];
      if constexpr (kExact) added = fmaf(row[c], decay.low, added);
      row[c] = fmaf(row[c], decay.high, added);
      sum[c] = fmaf(read, row[c], sum[c]);
    }
  }

  const WalkShape& shape_;
  const WalkParams& p_;
  const WalkBlock& block_;
  int warp_;
  int row_warp_;
  int row_lane_;
  int column_quad_;
  float state_[kRows][kColumnsPerLane];
};

}  // namespace attune::cuda::fused_recurrent
