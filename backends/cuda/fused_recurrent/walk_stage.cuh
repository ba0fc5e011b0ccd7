// The staging warps of a walk: they bring tokens to shared memory, with decays computed once a
// block, and write to global memory what the state warps read.
#pragma once

#include <type_traits>

#include "cuda/fused_recurrent/walk_block.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::fused_recurrent {

inline constexpr int kStagingThreads = kStagingWarps * kWarpSize;
inline constexpr int kHalfThreads = kStagingThreads / 2;

/// What a half of the staging warps stages.
enum class Staged { kReadsAndWrites, kValuesAndDecays };

/// A block's view of what one half stages, and of what both write.
template <class T, int kGates, Staged kStaged>
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
        half_thread_(thread_ % kHalfThreads) {
    if constexpr (kStaged == Staged::kReadsAndWrites) {
      read_ = cursor_of<T>(p, block, p.read, block.first_row, block.rows);
      write_ = cursor_of<T>(p, block, p.write, block.first_row, block.rows);
      return;
    }
    gamma_ = constant_decay(p.gamma, block.sequence, block.head);
    value_ = cursor_of<T>(p, block, p.value, block.first_column, block.columns);
    shared_gate_ = gate_cursor_of<T>(p, block, {p.shared_gate, false}, 0, 1);
    if constexpr ((kGates & kRowGates) != 0) {
      row_gate_ = gate_cursor_of<T>(p, block, p.row_gate, block.first_row, block.rows);
    }
    if constexpr ((kGates & kColumnGates) != 0) {
      column_gate_ = gate_cursor_of<T>(p, block, p.column_gate, block.first_column, block.columns);
    }
  }

  /// Fills a buffer with the tokens of a stage.
  __device__ void stage(const WalkStage& stage, int buffer) const {
    float* const to = shared_ + buffer * layout_.floats;
    if constexpr (kStaged == Staged::kReadsAndWrites) {
      auto* const pairs = reinterpret_cast<float4*>(to + layout_.pairs);
      if (write_.vectors && read_.vectors) {
        stage_pairs<true>(stage, pairs);
      } else {
        stage_pairs<false>(stage, pairs);
      }
      return;
    }
    auto* const values = reinterpret_cast<float4*>(to + layout_.values);
    if (value_.vectors) {
      stage_values<true>(stage, values);
    } else {
      stage_values<false>(stage, values);
    }
    if constexpr (kGates == 0) {
      stage_shared_decays(stage, reinterpret_cast<DecayFactor*>(to + layout_.shared_decays));
    }
    if constexpr ((kGates & kRowGates) != 0) {
      stage_decays(stage, row_gate_, true, shape_.rows(), to + layout_.row_decays);
    }
    if constexpr ((kGates & kColumnGates) != 0) {
      // The log decay that all channels share is added once.
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

  /// Whether a step has a token: the last one has none where the walk ends with a decay.
  __device__ bool has_token(std::int64_t step) const { return step < block_.span.length; }

  /// Calls store(item, load(item)) for this thread's items among those of its half, with kBatch
  /// loads in flight at a time.
  template <class Load, class Store>
  __device__ __forceinline__ void for_each_item(int items, const Load& load,
                                                const Store& store) const {
    constexpr int kBatch = kLogs ? 2 : 4;  // as many as registers allow
    for (int first = half_thread_; first < items; first += kBatch * kHalfThreads) {
      decltype(load(0)) loaded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) loaded[i] = load(first + i * kHalfThreads);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int item = first + i * kHalfThreads;
        if (item < items) store(item, loaded[i]);
      }
    }
  }

  /// Rows of writes and reads.
  template <bool kVectors>
  __device__ void stage_pairs(const WalkStage& stage, float4* to) const {
    struct Pair {
      QuadBits<T> write, read;
    };
    const int quads = shape_.rows() / kQuad;  // a power of two
    const int shift = __ffs(quads) - 1;
    const int items = stage.count * quads;
    for_each_item(
        items,
        [&](int item) {
          const std::int64_t step = stage.first + (item >> shift);
          const int channel = (item & (quads - 1)) * kQuad;
          const bool valid = item < items && has_token(step);
          return Pair{load_quad<kVectors>(write_, step, channel, valid),
                      load_quad<kVectors>(read_, step, channel, valid)};
        },
        [&](int item, const Pair& pair) {
          const float4 write = pair.write.floats();
          const float4 read = pair.read.floats();
          const float scale = p_.write_scale;
          to[2 * item] = {write.x * scale, read.x, write.y * scale, read.y};
          to[2 * item + 1] = {write.z * scale, read.z, write.w * scale, read.w};
        });
  }

  template <bool kVectors>
  __device__ void stage_values(const WalkStage& stage, float4* to) const {
    const int quads = shape_.columns() / kQuad;  // a power of two
    const int shift = __ffs(quads) - 1;
    const int items = stage.count * quads;
    for_each_item(
        items,
        [&](int item) {
          const std::int64_t step = stage.first + (item >> shift);
          const bool valid = item < items && has_token(step);
          return load_quad<kVectors>(value_, step, (item & (quads - 1)) * kQuad, valid);
        },
        [&](int item, const QuadBits<T>& value) { to[item] = value.floats(); });
  }

  /// The step whose token's gates apply, or -1 where none does.
  __device__ std::int64_t gate_step(std::int64_t step) const { return p_.lags ? step - 1 : step; }

  /// The log decay that all channels of a token share.
  __device__ float shared_log(std::int64_t gate_step, bool valid) const {
    valid = valid && gate_step >= 0;
    const float g = shared_gate_.f32.first != nullptr
                        ? to_float(load_quad<false>(shared_gate_.f32, gate_step, 0, valid).x[0])
                        : to_float(load_quad<false>(shared_gate_.io, gate_step, 0, valid).x[0]);
    return valid ? gamma_ + g : 0.0F;
  }

  __device__ void stage_shared_decays(const WalkStage& stage, DecayFactor* to) const {
    for (int token = half_thread_; token < stage.count; token += kHalfThreads) {
      to[token] = decay_factor(shared_log(gate_step(stage.first + token), true));
    }
  }

  __device__ void stage_decays(const WalkStage& stage, const GateCursor<T>& gate, bool add_shared,
                               int width, float* to) const {
    const auto stage_from = [&](const auto& cursor) {
      if (cursor.vectors) {
        stage_decays<true>(stage, cursor, add_shared, width / kQuad, to);
      } else {
        stage_decays<false>(stage, cursor, add_shared, width / kQuad, to);
      }
    };
    if (gate.f32.first != nullptr) {
      stage_from(gate.f32);
    } else {
      stage_from(gate.io);
    }
  }

  /// Gates of `quads` quads of channels, as factors or as logarithms.
  template <bool kVectors, class Gate>
  __device__ void stage_decays(const WalkStage& stage, const RowCursor<Gate>& gate, bool add_shared,
                               int quads, float* to) const {
    struct Logs {
      QuadBits<Gate> channels;
      float shared;
    };
    const int shift = __ffs(quads) - 1;  // a power of two
    const int items = stage.count * quads;
    auto* const high = reinterpret_cast<float4*>(to);
    float4* const low = high + shape_.tokens * quads;
    for_each_item(
        items,
        [&](int item) {
          const std::int64_t step = gate_step(stage.first + (item >> shift));
          const bool valid = item < items && step >= 0;
          return Logs{load_quad<kVectors>(gate, step, (item & (quads - 1)) * kQuad, valid),
                      shared_log(step, valid && add_shared)};
        },
        [&](int item, const Logs& logs) {
          const float4 x = logs.channels.floats();
          store_decays(
              high + item, low + item,
              {x.x + logs.shared, x.y + logs.shared, x.z + logs.shared, x.w + logs.shared});
        });
  }

  __device__ void store_decays(float4* high, float4* low, const float4& log) const {
    if constexpr (kLogs) {
      // 16-bit types take the hardware's 2^x of the sum.
      constexpr float kUnit = kExact ? 1.0F : kLog2E;
      *high = {log.x * kUnit, log.y * kUnit, log.z * kUnit, log.w * kUnit};
    } else {
      const DecayFactor x = decay_factor(log.x);
      const DecayFactor y = decay_factor(log.y);
      const DecayFactor z = decay_factor(log.z);
      const DecayFactor w = decay_factor(log.w);
      *high = {x.high, y.high, z.high, w.high};
      if constexpr (kExact) *low = {x.low, y.low, z.low, w.low};
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
  int thread_;       // among the staging warps
  int half_thread_;  // among the half of them that stage the same
  float gamma_ = 0.0F;
  RowCursor<T> read_;
  RowCursor<T> write_;
  RowCursor<T> value_;
  GateCursor<T> shared_gate_;
  GateCursor<T> row_gate_;
  GateCursor<T> column_gate_;
};

}  // namespace attune::cuda::fused_recurrent
