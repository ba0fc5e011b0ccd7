// The factors of outputs where value channels have gates (channel_operands.hpp), on their way to
// shared memory: a warp brings those of its own 16 channels, and waits for them itself.
#pragma once

#include "cuda/chunk_mma/stages.cuh"

namespace attune::cuda::chunk_mma {

template <class Shape>
class OutputFactors {
 public:
  __device__ explicit OutputFactors(void* memory)
      : own_(static_cast<float*>(memory) + threadIdx.x / kWarpSize * (Shape::kChunk * kStride)) {}

  /// Begins to load those of a chunk; zeros for what does not exist.
  __device__ __forceinline__ void fetch(const SplitWalkParams& p, const Walk& walk,
                                        int chunk) const {
    constexpr int kPerCopy = 4;
    constexpr int kCopies = kValuesPerWarp / kPerCopy;  // of a row
    constexpr int kRows = kWarpSize / kCopies;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int channel = lane % kCopies * kPerCopy;
    const int values = p.value_channels - walk.first_value - own_channel();
    const int rows = channel < values ? walk.rows(chunk) : 0;
    const Rows<const float> from = rows_of<const float>(p.output_factors, walk, walk.head,
                                                        walk.first_value + own_channel() + channel);
#pragma unroll
    for (int first = 0; first < Shape::kChunk; first += kRows) {
      const int row = first + lane / kCopies;
      copy_async_16(shared_address(own_ + row * kStride + channel),
                    from.at(walk.token(walk.position(chunk) + row)), row < rows);
    }
    copy_async_commit();
  }

  __device__ __forceinline__ void apply(Outputs<Shape>& outputs) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const float* const factors = own_ + lane % 4 * 2 * kStride + lane / 4;
    copy_async_wait<0>();
    __syncwarp();  // other lanes' are there
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        outputs[n][e] *= factors[(8 * n + e % 2) * kStride + e / 2 * 8];
      }
    }
  }

 private:
  static constexpr int kStride = kFactorStride;

  float* own_;
};

}  // namespace attune::cuda::chunk_mma
