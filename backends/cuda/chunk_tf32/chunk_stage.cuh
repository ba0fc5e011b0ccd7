// The staging warps of a walk: they bring chunks to shared memory, with their decays, a chunk ahead
// of the state warps. A thread has one row's or one column's channel over all tokens of a chunk, so
// sums of decays need no exchange, and a warp's loads are of neighbours whatever the strides.
#pragma once

#include "cuda/chunk_tf32/channel_stage.cuh"

namespace attune::cuda::chunk_tf32 {

template <class T, int kRows, int kParts>
class RowStager : public ChannelStager<T, kRows, kParts> {
  using Base = ChannelStager<T, kRows, kParts>;
  using Base::block_, Base::channel_, Base::p_;
  using At = typename Base::At;

 public:
  __device__ RowStager(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                       int number)
      : Base(tile, p, block, number),
        reads_anything_(p.out.data != nullptr || p.planes != nullptr),
        gamma_(constant_decay(p.gamma, block.sequence, block.head)) {
    const std::int64_t gate_step = block.first - (p.lags ? 1 : 0);
    shared_gate_ = GateChannel<T>(p.shared_gate, p, block, gate_step, 0);
    if (channel_ >= block.rows) return;
    const std::int64_t at = block.first_row + channel_;
    read_ = ChannelCursor<T>(p.read.view, p.read.heads_per_row, p, block, block.first, at);
    write_ = ChannelCursor<T>(p.write.view, p.write.heads_per_row, p, block, block.first, at);
    gate_ = GateChannel<T>(p.row_gate.view, p, block, gate_step, at);
  }

  /// Begins all loads of a chunk; chunks come in order.
  __device__ __forceinline__ void fetch(std::int64_t chunk) {
    int steps = 0;
    int tokens = 0;
    this->count_steps(chunk, steps, tokens);
    const int first_gate = this->first_gate(chunk);
    if (reads_anything_) load_channel(read_, 0, read_.next == nullptr ? 0 : tokens, reads_);
    load_channel(write_, 0, write_.next == nullptr ? 0 : tokens, writes_);
    gate_.load(first_gate, gate_.given() ? steps : 0, gates_);
    const int lane = static_cast<int>(threadIdx.x) % kChunk;
    const bool valid = lane >= first_gate && lane < steps;
    shared_ = valid ? gamma_ : 0.0F;
    if (valid && shared_gate_.given()) shared_ += shared_gate_.at(lane);
    read_.next += read_.next == nullptr ? 0 : steps * read_.stride;
    write_.next += write_.next == nullptr ? 0 : steps * write_.stride;
    gate_.move(steps);
    shared_gate_.move(steps);
  }

  /// Fills a buffer with the chunk that was fetched.
  __device__ __forceinline__ void stage(float* to) const {
    float total = 0.0F;
    bool strange = false;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      total += log_at(i);
      strange = strange || Base::is_strange(total);
    }
    const bool one_by_one = this->any_strange(strange);
    if (channel_ == 0) to[At::kFlags] = one_by_one ? 1.0F : 0.0F;
    float* const read = to + At::kRead + channel_;
    float* const read_low = to + At::kReadLow + channel_;
    float* const write = to + At::kWrite + channel_;
    float* const write_low = to + At::kWriteLow + channel_;
    if (one_by_one) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        read[i * At::kReadStride] = float_of<T>(reads_[i]) * p_.read_scale;
        write[i * At::kWriteStride] = float_of<T>(writes_[i]) * p_.write_scale;
        write_low[i * At::kWriteStride] = log_at(i);
      }
      Base::make_factors(write_low, read_low, At::kWriteStride, At::kReadStride);
      return;
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      sum += log_at(i);
      const float w = float_of<T>(writes_[i]) * p_.write_scale * exp2_approx(sum * -kLog2E);
      Base::store(w, write + i * At::kWriteStride, write_low + i * At::kWriteStride);
    }
    if (reads_anything_) {
      sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        sum += log_at(i);
        const float r = float_of<T>(reads_[i]) * p_.read_scale * exp2_approx(sum * kLog2E);
        Base::store(r, read + i * At::kReadStride, read_low + i * At::kReadStride);
      }
    }
    Base::store_total(total, to + At::kRowTotal + 2 * channel_);
  }

 private:
  __device__ __forceinline__ float log_at(int i) const {
    return __shfl_sync(kFullWarp, shared_, i) + gate_.log_of(gates_[i]);
  }

  bool reads_anything_;
  float gamma_;
  ChannelCursor<T> read_;
  ChannelCursor<T> write_;
  GateChannel<T> gate_;
  GateChannel<T> shared_gate_;
  std::uint32_t reads_[kChunk] = {};
  std::uint32_t writes_[kChunk];
  std::uint32_t gates_[kChunk];
  float shared_ = 0.0F;  // the log decay that all channels share, of token lane % kChunk
};

template <class T, int kRows, int kParts>
class ColumnStager : public ChannelStager<T, kRows, kParts> {
  using Base = ChannelStager<T, kRows, kParts>;
  using Base::block_, Base::channel_, Base::p_;
  using At = typename Base::At;

 public:
  __device__ ColumnStager(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                          int number)
      : Base(tile, p, block, number),
        columns_(column_layout(At::kEnd, tile.columns(), kParts, p.column_gate.view.given())),
        in_tile_(number < tile.columns()),
        gated_(p.column_gate.view.given()) {
    if (channel_ >= block.columns) return;
    const std::int64_t at = block.first_column + channel_;
    value_ = ChannelCursor<T>(p.value.view, p.value.heads_per_row, p, block, block.first, at);
    gate_ = GateChannel<T>(p.column_gate.view, p, block, block.first - (p.lags ? 1 : 0), at);
  }

  __device__ __forceinline__ void fetch(std::int64_t chunk) {
    int steps = 0;
    int tokens = 0;
    this->count_steps(chunk, steps, tokens);
    load_channel(value_, 0, value_.next == nullptr ? 0 : tokens, values_);
    gate_.load(this->first_gate(chunk), gate_.given() ? steps : 0, gates_);
    value_.next += value_.next == nullptr ? 0 : steps * value_.stride;
    gate_.move(steps);
  }

  __device__ __forceinline__ void stage(float* to) const {
    float total = 0.0F;
    bool strange = false;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      total += gate_.log_of(gates_[i]);
      strange = strange || Base::is_strange(total);
    }
    const bool one_by_one = this->any_strange(strange);
    if (!in_tile_) return;
    float* const value = to + columns_.value + channel_;
    float* const value_low = to + columns_.value_low + channel_;
    float* const factor = to + columns_.factor + channel_;
    const int stride = columns_.stride;
    if (one_by_one) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        value[i * stride] = float_of<T>(values_[i]);
        if (gated_) factor[i * stride] = gate_.log_of(gates_[i]);
      }
      if (gated_) Base::make_factors(factor, value_low, stride, stride);
      return;
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float x = float_of<T>(values_[i]);
      if (gated_) {
        sum += gate_.log_of(gates_[i]);
        x *= exp2_approx(sum * -kLog2E);
        factor[i * stride] = exp2_approx(sum * kLog2E);
      }
      Base::store(x, value + i * stride, value_low + i * stride);
    }
    if (gated_) Base::store_total(total, to + columns_.total + 2 * channel_);
  }

 private:
  ColumnLayout columns_;
  bool in_tile_;
  bool gated_;
  ChannelCursor<T> value_;
  GateChannel<T> gate_;
  std::uint32_t values_[kChunk];
  std::uint32_t gates_[kChunk];
};

}  // namespace attune::cuda::chunk_tf32
