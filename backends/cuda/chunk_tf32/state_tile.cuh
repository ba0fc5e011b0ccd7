// The tile of a walk's state that a state warp has in registers (chunk_state.cuh): 16 columns of the
// block's, from the state that a segment starts from to what it leaves, and where its tokens' outputs go.
#pragma once

#include "cuda/chunk_tf32/chunk_block.cuh"

namespace attune::cuda::chunk_tf32 {

template <class T, int kRows, int kParts>
class StateTile {
 public:
  __device__ StateTile(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                       float* shared)
      : tile_(tile),
        p_(p),
        block_(block),
        columns_(column_layout(At::kEnd, tile.columns(), kParts, p.column_gate.view.given())),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        group_(static_cast<int>(threadIdx.x) % kWarpSize / 4),
        pair_(static_cast<int>(threadIdx.x) % 4 * 2),
        reads_(p.out.data != nullptr || p.planes != nullptr) {}

  /// The state that the segment starts from, zeros where there is none and in padding.
  __device__ __forceinline__ void load() {
    // A test of each element is half of a short walk's time. With the largest tile in two parts the
    // compiler makes slower code of all chunks where the walk returns here early.
    constexpr bool kReturnsEarly = kRows < 128 || kParts == 1;
    const ConstStateView from = start_of(p_, block_);
    for_each_element([](float& x, int, int) { x = 0.0F; });
    if (kReturnsEarly && from.data == nullptr) return;
    for_each_element([&](float& x, int row, int column) {
      if (from.data != nullptr && row < block_.rows && column < block_.columns) {
        x = from.data[state_offset(from, row, column)];
      }
    });
  }

  /// Stores the state in one of [H, K, V], where there is one.
  __device__ __forceinline__ void store(const StateView& to) {
    if (to.data == nullptr) return;
    for_each_element([&](float x, int row, int column) {
      if (row < block_.rows && column < block_.columns) to.data[state_offset(to, row, column)] = x;
    });
  }

  /// Stores the state as a checkpoint.
  __device__ __forceinline__ void keep(std::int64_t index) const {
    float4* const to = checkpoint_at(index);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      to[n * kWarpSize] = {state_[n][0], state_[n][1], state_[n][2], state_[n][3]};
    }
  }

  /// The products of the state with the one in a checkpoint, summed over the block's rows.
  __device__ __forceinline__ void meet(std::int64_t index) const {
    const float4* const from = checkpoint_at(index);
    float sum[2] = {};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float4 x = from[n * kWarpSize];
      sum[0] = fmaf(x.x, state_[n][0], fmaf(x.z, state_[n][2], sum[0]));
      sum[1] = fmaf(x.y, state_[n][1], fmaf(x.w, state_[n][3], sum[1]));
    }
    const std::int64_t row = (block_.row_block * p_.checkpoints.count + first_checkpoint() + index);
    float* const to =
        p_.checkpoints.products + (row * p_.heads + block_.head) * p_.columns + block_.first_column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = sum_of_rows(sum[half]);
      if (pair_ == 0 && column(half) < block_.columns) to[column(half)] = all;
    }
  }

 protected:
  static constexpr int kTiles = kRows / 8;
  using At = RowLayout<kRows, kParts>;

  /// The lane's columns are column(0) and column(1), its rows 8 n + pair_ and the next.
  __device__ int column(int half) const { return warp_ * kColumnsPerWarp + group_ + half * 8; }

  template <class Visit>
  __device__ __forceinline__ void for_each_element(Visit&& visit) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) visit(state_[n][e], 8 * n + pair_ + e / 2, column(e % 2));
    }
  }

  template <class View>
  __device__ __forceinline__ std::int64_t state_offset(const View& view, int row,
                                                       int column) const {
    return block_.head * view.head + (block_.first_row + row) * view.k +
           (block_.first_column + column) * view.v;
  }

  __device__ std::int64_t first_checkpoint() const {
    return first_part(p_.sequences, block_.sequence, block_.span, p_.checkpoints.interval);
  }
  __device__ float4* checkpoint_at(std::int64_t index) const {
    const std::int64_t tile =
        ((first_checkpoint() + index) * p_.heads + block_.head) * block_.tiles + block_.tile;
    const std::int64_t warp = tile * tile_.column_warps + warp_;
    return reinterpret_cast<float4*>(p_.checkpoints.states) + warp * kTiles * kWarpSize +
           static_cast<int>(threadIdx.x) % kWarpSize;
  }

  __device__ static float sum_of_rows(float x) {
    x += __shfl_xor_sync(kFullWarp, x, 1);
    return x + __shfl_xor_sync(kFullWarp, x, 2);
  }

  // ---- outputs

  __device__ __forceinline__ std::int64_t token_of(std::int64_t step) const {
    const SequenceSpan& span = block_.span;
    return span.begin + (p_.descending ? span.length - 1 - step : step);
  }
  /// Where a step's outputs go, from the lane's first column on.
  __device__ __forceinline__ T* output_at(std::int64_t step) const {
    const std::int64_t at = row_offset(p_.out, block_.span.batch, token_of(step), block_.head);
    return static_cast<T*>(p_.out.data) + at + block_.first_column + column(0);
  }
  __device__ __forceinline__ float* plane_at(std::int64_t step) const {
    const std::int64_t plane = block_.row_block * p_.batches + block_.span.batch;
    const std::int64_t row =
        (plane * p_.sequences.tokens + token_of(step)) * p_.heads + block_.head;
    return p_.planes + row * p_.columns + block_.first_column + column(0);
  }

  const WalkTile& tile_;
  const WalkParams& p_;
  const ChunkBlock& block_;
  ColumnLayout columns_;
  float* shared_;
  int warp_;
  int group_;
  int pair_;
  bool reads_;
  float state_[kTiles][4];
};

}  // namespace attune::cuda::chunk_tf32
