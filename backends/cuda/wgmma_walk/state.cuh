// The state of one value tile in the registers of a warpgroup, transposed: S^T [64, tile_k] in
// fp32.
//
// Its registers have the layout of a wgmma accumulator, which is also that of a 16-bit operand in
// registers: the state is multiplied where it is and never passes through shared memory. A lane
// holds, for every eight channels of K, two neighbours of rows v and v + 8.
#pragma once

#include "cuda/wgmma_walk/tile_copies.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::chunk_wgmma {

/// Value channels of a warpgroup: the rows of one wgmma.
inline constexpr int kStateRows = 64;
/// The extent that one wgmma sums over.
inline constexpr int kWgmmaDepth = 16;
/// Bytes of kWgmmaDepth elements along a row, and of as many rows.
inline constexpr int kDepthBytes = 2 * kWgmmaDepth;
inline constexpr int kDepthRowsBytes = kWgmmaDepth * kPanelRowBytes;

template <int kTileK>
struct StateTile {
  static constexpr int kCount = kTileK / 2;                 // registers
  static constexpr int kPart = kCount % 64 == 0 ? 64 : 32;  // of one wgmma: 128 channels, or 64
  static constexpr int kParts = kCount / kPart;
  float part[kParts][kPart];

  __device__ __forceinline__ float& operator[](int i) { return part[i / kPart][i % kPart]; }
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < kParts; ++i) wgmma_pin(part[i]);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) (*this)[i] = 0.0F;
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) (*this)[i] *= factor;
    pin();
  }
  /// Columns of `channels` from `first` on times the magnitudes of factors of their own; `factors`: of
  /// a lane's first one of these.
  __device__ __forceinline__ void scale_magnitudes(const float* factors, int first, int channels) {
#pragma unroll
    for (int i = 0; i < channels / 2; i += 4) {
      const float2 of = *reinterpret_cast<const float2*>(&factors[2 * i]);
#pragma unroll
      for (int e = 0; e < 4; ++e) (*this)[first / 2 + i + e] *= fabsf(e % 2 == 0 ? of.x : of.y);
    }
  }
};

/// This thread's place in its warpgroup and in its accumulators.
struct Lane {
  int thread = static_cast<int>(threadIdx.x) % kWarpgroupSize;
  int warp = thread / kWarpSize;
  int lane = thread % kWarpSize;
  int row = warp * 16 + lane / 4;  // and row + 8
  int column = lane % 4 * 2;       // and column + 1, in every eight columns

  /// The same, read anew by each call: what was made of it need not stay in registers.
  __device__ __forceinline__ static Lane anew() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return {.thread = thread % kWarpgroupSize};
  }
};

/// Values of a chunk as the left operand, V^T [64, 16] for each 16 tokens.
struct ValueFragments {
  static constexpr int kSteps = kChunkTokens / kWgmmaDepth;
  std::uint32_t step[kSteps][4];

  /// Behind the wait for products that read these.
  __device__ __forceinline__ void hold() const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) wgmma_hold(step[s]);
  }

  /// From a panel of v.
  __device__ __forceinline__ void load(std::uint32_t panel, const Lane& me) {
    const int row = me.lane / 16 * 8 + me.lane % 8;
    const int byte = (me.warp * 16 + me.lane / 8 % 2 * 8) * 2;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      load_matrices_transposed(step[s], panel + swizzled(s * kWgmmaDepth + row, byte));
    }
  }
  /// Each token's values times its factor.
  template <class T>
  __device__ __forceinline__ void scale(const float* factors, const Lane& me) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const at = factors + s * kWgmmaDepth + half * 8 + me.column;
        const float2 factor = *reinterpret_cast<const float2*>(at);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          std::uint32_t& pair = step[s][half * 2 + i];
          const float2 value = unpack<T>(pair);
          pair = pack<T>(value.x * factor.x, value.y * factor.y);
        }
      }
    }
  }
};

/// Queues S^T += V^T K for a chunk, without a commit. `k_tile`: panels of k side by side.
template <class T, int kTileK>
__device__ __forceinline__ void queue_state_update(StateTile<kTileK>& state,
                                                   const ValueFragments& values,
                                                   std::uint32_t k_tile) {
  constexpr int kPartBytes = StateTile<kTileK>::kPart * 2 / kPanelChannels * kPanelBytes;
  const std::uint64_t first = matrix_descriptor(k_tile, kPanelBytes);
#pragma unroll
  for (int s = 0; s < ValueFragments::kSteps; ++s) {
#pragma unroll
    for (int i = 0; i < StateTile<kTileK>::kParts; ++i) {
      const std::uint64_t k = descriptor_further(first, i * kPartBytes + s * kDepthRowsBytes);
      if constexpr (StateTile<kTileK>::kPart == 64) {
        wgmma_n128<T, Major::kMN>(state.part[i], values.step[s], k, true);
      } else {
        wgmma_n64<T, Major::kMN>(state.part[i], values.step[s], k, true);
      }
    }
  }
}

/// The state, or 8 x 16 channels of it, rounded to 16 bits as a left
/// operand.
struct StateOperand {
  static constexpr int kSteps = 8;
  /// Of a state of so many channels: as many as registers hold beside it.
  static constexpr int steps_at_once(int tile_k) {
    return tile_k < 128 ? tile_k / kWgmmaDepth : tile_k == 192 ? 3 : kSteps;
  }
  std::uint32_t step[kSteps][4];

  /// From the `first`-th 16 channels on.
  template <class T, int kUsed, int kTileK>
  __device__ __forceinline__ void round(StateTile<kTileK>& state, int first) {
#pragma unroll
    for (int s = 0; s < kUsed; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (first + s) * 8 + i * 2;
        step[s][i] = pack<T>(kStateScale<T> * state[at], kStateScale<T> * state[at + 1]);
      }
    }
  }
  template <int kUsed>
  __device__ __forceinline__ void hold() const {
#pragma unroll
    for (int s = 0; s < kUsed; ++s) wgmma_hold(step[s]);
  }
};

/// Queues O^T += S^T Q^T over the channels that an operand has, from the `first`-th 16 on, and commits it;
/// the first of all begin O^T. `queries` describes the tile of Q.
template <class T, int kSteps>
__device__ __forceinline__ void queue_state_products(float (&o)[kChunkTokens / 2],
                                                     const StateOperand& operand,
                                                     std::uint64_t queries, int first) {
  constexpr int kStepsOfPanel = kPanelChannels / kWgmmaDepth;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int step = first + s;
    const std::uint64_t q = descriptor_further(
        queries, step / kStepsOfPanel * kPanelBytes + step % kStepsOfPanel * kDepthBytes);
    wgmma_n64<T, Major::kK>(o, operand.step[s], q, step > 0);
  }
  wgmma_commit();
}

/// Queues O^T += V^T P^T and commits it.
template <class T>
__device__ __forceinline__ void queue_scored_values(float (&o)[kChunkTokens / 2],
                                                    const ValueFragments& values,
                                                    const std::byte* score_tile) {
  const std::uint64_t scores = matrix_descriptor(shared_address(score_tile));
#pragma unroll
  for (int s = 0; s < ValueFragments::kSteps; ++s) {
    wgmma_n64<T, Major::kK>(o, values.step[s], descriptor_further(scores, s * kDepthBytes), true);
  }
  wgmma_commit();
}

/// The same, of a panel of V in shared memory.
template <class T>
__device__ __forceinline__ void queue_scored_values(float (&o)[kChunkTokens / 2],
                                                    std::uint32_t value_panel,
                                                    const std::byte* score_tile) {
  const std::uint64_t scores = matrix_descriptor(shared_address(score_tile));
  const std::uint64_t values = matrix_descriptor(value_panel);
#pragma unroll
  for (int s = 0; s < ValueFragments::kSteps; ++s) {
    wgmma_n64<T, Major::kMN, Major::kK>(o, descriptor_further(values, s * kDepthRowsBytes),
                                        descriptor_further(scores, s * kDepthBytes), true);
  }
  wgmma_commit();
}

/// Queues O^T = S^T Q^T for a chunk and commits it. The state is rounded to 16 bits for it, and
/// when all of it has been, its decay is applied to it, which the products do not see: what beside()
/// returns, called while the first products are under way if there are several rounds of them.
/// `operand` must be held until they are done.
template <class T, int kTileK, class Beside>
__device__ __forceinline__ void queue_state_read(float (&o)[32], StateTile<kTileK>& state,
                                                 StateOperand& operand, std::uint32_t q_tile,
                                                 Beside&& beside) {
  constexpr int kSteps = kTileK / kWgmmaDepth;
  constexpr int kStepsAtOnce = StateOperand::steps_at_once(kTileK);
  static_assert(kSteps % kStepsAtOnce == 0);
  const std::uint64_t queries = matrix_descriptor(q_tile);
  constexpr int kBeside = kSteps > kStepsAtOnce ? kStepsAtOnce : 0;
  decltype(beside()) decay;
#pragma unroll
  for (int first = 0; first < kSteps; first += kStepsAtOnce) {
    if (first == kBeside) decay = beside();
    if (first > 0) {
      wgmma_wait<0>();
      wgmma_pin(o);
      operand.hold<kStepsAtOnce>();
    }
    operand.round<T, kStepsAtOnce>(state, first);
    if (first + kStepsAtOnce == kSteps) state.scale(decay);
    wgmma_fence();
    queue_state_products<T, kStepsAtOnce>(o, operand, queries, first);
  }
}

/// O^T = S^T Q^T for a chunk, and the state times its decay, where few registers are left: the next
/// product's part of the state is rounded while one is under way.
template <class T, int kTileK>
__device__ __forceinline__ void read_state(float (&o)[32], StateTile<kTileK>& state,
                                           std::uint32_t q_tile, float decay) {
  const std::uint64_t queries = matrix_descriptor(q_tile);
  StateOperand operands[2];
#pragma unroll
  for (int step = 0; step < kTileK / kWgmmaDepth; ++step) {
    StateOperand& operand = operands[step % 2];
    if (step > 0) wgmma_wait<1>();
    if (step > 1) operand.hold<1>();
    operand.round<T, 1>(state, step);
    wgmma_fence();
    queue_state_products<T, 1>(o, operand, queries, step);
  }
  wgmma_wait<0>();
  wgmma_pin(o);
  for (const StateOperand& operand : operands) operand.hold<1>();
  state.scale(decay);
}

/// Rounds the outputs of a chunk into a panel, one row for each token: 64 value channels x 64
/// tokens over a warpgroup. A warp writes where it alone has read v. The fence before the copy engine
/// reads it is left to those who start that.
template <class T>
__device__ __forceinline__ void store_outputs(const float (&o)[kChunkTokens / 2],
                                              std::uint32_t panel, const Lane& me) {
  const int row = me.lane / 16 * 8 + me.lane % 8;
  const int byte = (me.warp * 16 + me.lane / 8 % 2 * 8) * 2;
#pragma unroll
  for (int n = 0; n < kChunkTokens / 8; n += 2) {
    const float* const pairs = &o[4 * n];
    store_matrices_transposed(panel + swizzled(8 * n + row, byte), pack<T>(pairs[0], pairs[1]),
                              pack<T>(pairs[2], pairs[3]), pack<T>(pairs[4], pairs[5]),
                              pack<T>(pairs[6], pairs[7]));
  }
}

}  // namespace attune::cuda::chunk_wgmma

#endif
