// What the staging warps of a walk do: tokens to shared memory, with their decays computed once,
// and what the state warps read to global memory.
#pragma once

#include <type_traits>

#include "cuda/recurrent/decay.cuh"
#include "cuda/recurrent/walk_block.cuh"
#include "cuda/recurrent/walk_layout.hpp"

namespace attune::cuda {

inline constexpr int kStagingThreads = kStagingWarps * kWarpSize;
inline constexpr int kQuad = 4;  // channels that are loaded and stored together

/// The part of a head's rows that a block needs, by step of the walk.
template <class T>
struct RowCursor {
  const T* first = nullptr;  // null: zero rows
  std::int64_t stride = 0;   // from step to step
  int width = 0;
  bool vectors = false;

  __device__ const T* row(std::int64_t step) const {
    return first == nullptr ? nullptr : first + step * stride;
  }
};

/// A gate's, in either of its types.
template <class T>
struct GateCursor {
  RowCursor<float> f32;
  RowCursor<T> io;
};

template <class T>
__device__ RowCursor<T> cursor_of(const WalkParams& p, const WalkBlock& block,
                                  const ConstTokenView& view, std::int64_t head,
                                  std::int64_t channel, int width) {
  if (view.data == nullptr) return {};
  const SequenceSpan& span = block.span;
  const std::int64_t token = p.descending ? span.begin + span.length - 1 : span.begin;
  return {static_cast<const T*>(view.data) + row_offset(view, span.batch, token, head) + channel,
          p.descending ? -view.token : view.token, width, false};
}

template <class T>
__device__ GateCursor<T> gate_cursor_of(const WalkParams& p, const WalkBlock& block,
                                        const GateView& gate, std::int64_t channel, int width) {
  if (gate.is_f32) {
    return {cursor_of<float>(p, block, gate.rows, block.head, channel, width), {}};
  }
  return {{}, cursor_of<T>(p, block, gate.rows, block.head, channel, width)};
}

/// Channels [channel, channel + 4) of a row, zero beyond its width.
template <class T>
__device__ __forceinline__ float4 load_quad(const RowCursor<T>& cursor, std::int64_t step,
                                            int channel) {
  const T* const row = cursor.row(step);
  if (row == nullptr) return {};
  if (cursor.vectors && channel + kQuad <= cursor.width) {
    if constexpr (std::is_same_v<T, float>) {
      return *reinterpret_cast<const float4*>(row + channel);
    } else {
      const uint2 packed = *reinterpret_cast<const uint2*>(row + channel);
      const float2 low = unpack<T>(packed.x);
      const float2 high = unpack<T>(packed.y);
      return {low.x, low.y, high.x, high.y};
    }
  }
  const auto at = [&](int i) {
    return channel + i < cursor.width ? to_float(row[channel + i]) : 0.0F;
  };
  return {at(0), at(1), at(2), at(3)};
}

template <class T>
__device__ __forceinline__ float4 load_gate_quad(const GateCursor<T>& gate, std::int64_t step,
                                                 int channel) {
  return gate.f32.first != nullptr ? load_quad(gate.f32, step, channel)
                                   : load_quad(gate.io, step, channel);
}

/// A block's view of everything it stages.
template <class T, int kGates>
class Stager {
 public:
  __device__ Stager(const WalkShape& shape, const WalkParams& p, const WalkBlock& block,
                    float* shared)
      : shape_(shape),
        p_(p),
        block_(block),
        shared_(shared),
        layout_(stage_layout(shape, kGates, kExact)),
        thread_(static_cast<int>(threadIdx.x) - shape.state_warps() * kWarpSize),
        gamma_(constant_decay(p.gamma, block.sequence, block.head)),
        read_(cursor(p.read, block.first_row, block.rows)),
        write_(cursor(p.write, block.first_row, block.rows)),
        value_(cursor(p.value, block.first_column, block.columns)),
        shared_gate_(gate_cursor_of<T>(p, block, p.shared_gate, 0, 1)) {
    if constexpr ((kGates & kRowGates) != 0) {
      row_gate_ = gate_cursor_of<T>(p, block, p.row_gate, block.first_row, block.rows);
    }
    if constexpr ((kGates & kColumnGates) != 0) {
      column_gate_ =
          gate_cursor_of<T>(p, block, p.column_gate, block.first_column, block.columns);
    }
  }

  /// Fills a buffer with the tokens of a stage.
  __device__ void stage(const WalkStage& stage, int buffer) const {
    float* const to = shared_ + buffer * layout_.floats;
    stage_pairs(stage, reinterpret_cast<float4*>(to + layout_.pairs));
    stage_values(stage, reinterpret_cast<float4*>(to + layout_.values));
    if constexpr (kGates == 0) {
      stage_shared_decays(stage, reinterpret_cast<DecayFactor*>(to + layout_.shared_decays));
    }
    if constexpr ((kGates & kRowGates) != 0) {
      stage_decays(stage, row_gate_, true, shape_.rows(), to + layout_.row_decays);
    }
    if constexpr ((kGates & kColumnGates) != 0) {
      // What all channels share is added once.
      constexpr bool kAddShared = (kGates & kRowGates) == 0;
      stage_decays(stage, column_gate_, kAddShared, shape_.columns(), to + layout_.column_decays);
    }
  }

  /// Writes what the state warps read at a stage's steps.
  __device__ void store(const WalkStage& stage, int buffer) const {
    if (p_.out.data == nullptr && p_.planes == nullptr) return;
    const int quads = shape_.columns() / kQuad;
    const int parts = shape_.row_warps * kRowLanes;
    const auto* const sums =
        reinterpret_cast<const float4*>(shared_ + buffer * layout_.floats + layout_.sums);
    for (int item = thread_; item < stage.count * quads; item += kStagingThreads) {
      const int token = item / quads;
      const int quad = item % quads;
      const std::int64_t step = stage.first + token;
      if (quad * kQuad >= block_.columns || step >= block_.span.length) continue;
      float4 sum{};
      for (int part = 0; part < parts; ++part) {
        const float4 x = sums[(token * parts + part) * quads + quad];
        sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
      }
      const float scale = p_.read_scale;
      store_quad(step, quad * kQuad, {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale});
    }
  }

 private:
  static constexpr bool kExact = std::is_same_v<T, float>;
  static constexpr bool kLogs = kGates == (kRowGates | kColumnGates);

  __device__ RowCursor<T> cursor(const WalkRows& rows, std::int64_t channel, int width) const {
    RowCursor<T> cursor =
        cursor_of<T>(p_, block_, rows.view, block_.head / rows.group, channel, width);
    cursor.vectors = rows.vectors;
    return cursor;
  }

  /// The last step of a walk that decays last has no token.
  __device__ bool has_token(std::int64_t step) const { return step < block_.span.length; }

  /// Rows of reads and writes, kBatch quads a thread in flight.
  __device__ void stage_pairs(const WalkStage& stage, float4* to) const {
    constexpr int kBatch = 2;
    const int quads = shape_.rows() / kQuad;  // a power of two
    const int shift = __ffs(quads) - 1;
    const int items = stage.count * quads;
    for (int first = thread_; first < items; first += kBatch * kStagingThreads) {
      float4 write[kBatch];
      float4 read[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int item = first + i * kStagingThreads;
        const std::int64_t step = stage.first + (item >> shift);
        const bool valid = item < items && has_token(step);
        const int channel = (item & (quads - 1)) * kQuad;
        write[i] = valid ? load_quad(write_, step, channel) : float4{};
        read[i] = valid ? load_quad(read_, step, channel) : float4{};
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int item = first + i * kStagingThreads;
        if (item >= items) continue;
        const float scale = p_.write_scale;
        to[2 * item] = {write[i].x * scale, read[i].x, write[i].y * scale, read[i].y};
        to[2 * item + 1] = {write[i].z * scale, read[i].z, write[i].w * scale, read[i].w};
      }
    }
  }

  __device__ void stage_values(const WalkStage& stage, float4* to) const {
    const int quads = shape_.columns() / kQuad;
    for (int item = thread_; item < stage.count * quads; item += kStagingThreads) {
      const std::int64_t step = stage.first + item / quads;
      to[item] = has_token(step) ? load_quad(value_, step, item % quads * kQuad) : float4{};
    }
  }

  /// The step whose token's gates apply, or -1 where none does.
  __device__ std::int64_t gate_step(std::int64_t step) const { return p_.lags ? step - 1 : step; }

  /// What all channels of a token share of the log decay.
  __device__ float shared_log(std::int64_t gate_step) const {
    return gate_step < 0 ? 0.0F : gamma_ + load_gate_quad(shared_gate_, gate_step, 0).x;
  }

  __device__ void stage_shared_decays(const WalkStage& stage, DecayFactor* to) const {
    for (int token = thread_; token < stage.count; token += kStagingThreads) {
      to[token] = decay_factor(shared_log(gate_step(stage.first + token)));
    }
  }

  /// Gates of `width` channels, as factors or as logarithms.
  __device__ void stage_decays(const WalkStage& stage, const GateCursor<T>& gate, bool add_shared,
                               int width, float* to) const {
    const int quads = width / kQuad;
    auto* const high = reinterpret_cast<float4*>(to);
    float4* const low = high + shape_.tokens * quads;
    for (int item = thread_; item < stage.count * quads; item += kStagingThreads) {
      const std::int64_t step = gate_step(stage.first + item / quads);
      float4 log = step < 0 ? float4{} : load_gate_quad(gate, step, item % quads * kQuad);
      const float shared = add_shared ? shared_log(step) : 0.0F;
      log = {log.x + shared, log.y + shared, log.z + shared, log.w + shared};
      if constexpr (kLogs) {
        // 16-bit types take the hardware's 2^x of the sum.
        constexpr float kUnit = kExact ? 1.0F : kLog2E;
        high[item] = {log.x * kUnit, log.y * kUnit, log.z * kUnit, log.w * kUnit};
      } else {
        const DecayFactor x = decay_factor(log.x);
        const DecayFactor y = decay_factor(log.y);
        const DecayFactor z = decay_factor(log.z);
        const DecayFactor w = decay_factor(log.w);
        high[item] = {x.high, y.high, z.high, w.high};
        if constexpr (kExact) low[item] = {x.low, y.low, z.low, w.low};
      }
    }
  }

  __device__ std::int64_t token_of(std::int64_t step) const {
    const SequenceSpan& span = block_.span;
    return p_.descending ? span.begin + span.length - 1 - step : span.begin + step;
  }

  __device__ void store_quad(std::int64_t step, int column, const float (&x)[kQuad]) const {
    const std::int64_t token = token_of(step);
    const int count = min(kQuad, block_.columns - column);
    if (p_.out.data != nullptr) {
      T* const to = static_cast<T*>(p_.out.data) +
                    row_offset(p_.out, block_.span.batch, token, block_.head) +
                    block_.first_column + column;
      if (p_.out_vectors && count == kQuad) {
        if constexpr (std::is_same_v<T, float>) {
          *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
        } else {
          *reinterpret_cast<uint2*>(to) = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3])};
        }
      } else {
        for (int i = 0; i < count; ++i) to[i] = from_float<T>(x[i]);
      }
    }
    if (p_.planes != nullptr) {
      const std::int64_t plane = block_.row_block * p_.batches + block_.span.batch;
      const std::int64_t row = (plane * p_.sequences.tokens + token) * p_.heads + block_.head;
      float* const to = p_.planes + row * p_.columns + block_.first_column + column;
      for (int i = 0; i < count; ++i) to[i] = x[i];
    }
  }

  const WalkShape& shape_;
  const WalkParams& p_;
  const WalkBlock& block_;
  float* shared_;
  StageLayout layout_;
  int thread_;
  float gamma_;
  RowCursor<T> read_;
  RowCursor<T> write_;
  RowCursor<T> value_;
  GateCursor<T> shared_gate_;
  GateCursor<T> row_gate_;
  GateCursor<T> column_gate_;
};

}  // namespace attune::cuda
