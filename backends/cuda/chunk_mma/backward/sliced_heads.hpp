// Few chunks of wide heads: slices of a head's channels as heads of their own.
//
// A tile of the state, of some key channels by some value channels, depends on no other, and
// gradients are sums over tiles. One after the other, as workspace.hpp has them, slices leave most of
// a device without work where chunks are few: 16 of K = V = 512, each of a block a chunk. Copies make
// each slice of keys by each of values a head of 128 channels, zeros behind the last, of one problem;
// its gradients are added up, always in the same order.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/chunk_mma/backward/workspace.hpp"

namespace attune::cuda::chunk_mma::backward {

inline constexpr int kSliceChannels = kMostChannels;

constexpr std::int64_t slices_of(std::int64_t channels) {
  return ceil_div(channels, kSliceChannels);
}
constexpr std::int64_t slices_of(const Problem& problem) {
  return slices_of(problem.K) * slices_of(problem.V);
}

/// Which slices of channels a tensor's rows have.
enum class SlicedChannels { kKeys, kValues, kNone };

/// A tensor [B, T, heads, D], or [B, T, heads] as one of D = 1, and its slices.
struct SlicedTensor {
  float* rows = nullptr;
  std::array<std::int64_t, 3> strides{};
  int channels = 1;
  SlicedChannels sliced = SlicedChannels::kNone;
  int group = 1;            // query heads that share one of its heads
  float* slices = nullptr;  // [B, T, H x slices, kSliceChannels or 1]

  __host__ __device__ int width() const {
    return sliced == SlicedChannels::kNone ? 1 : kSliceChannels;
  }
};
struct SlicedTensors {
  static constexpr int kMost = 7;
  std::array<SlicedTensor, kMost> of{};
  int count = 0;
};
/// States [N, H, K, V], and theirs.
struct SlicedState {
  float* state = nullptr;
  std::array<std::int64_t, 4> strides{};
  float* slices = nullptr;  // [N, H x slices, kSliceChannels, kSliceChannels]
};
struct HeadSlices {
  std::int64_t batches = 1;
  std::int64_t tokens = 0;
  std::int64_t sequences = 1;
  int heads = 1;  // query heads
  int keys = 0;   // channels
  int values = 0;
  int key_slices = 1;
  int value_slices = 1;

  __host__ __device__ int slices() const { return key_slices * value_slices; }
  __host__ __device__ int sliced_heads() const { return heads * slices(); }
};

class SlicedHeads {
 public:
  // As with_copies.hpp wants them.

  static bool are_wanted(const Problem& problem);
  static Problem made_of(Problem problem);
  static std::optional<double> expected_us(const Problem& problem, std::optional<double> own);
  static std::size_t bytes(const Problem& problem);

  /// Makes the tensors of `args` views of their slices in the workspace.
  SlicedHeads(const Problem& problem, Args& args, std::byte* workspace);

  void load(cudaStream_t stream) const;
  /// Queues the sums over slices, to where gradients go.
  void store(cudaStream_t stream) const;

 private:
  void slice_rows(const Problem& problem, Args& args, WorkspaceParts& parts);
  void slice_states(const Problem& problem, Args& args, WorkspaceParts& parts);
  void slice_gamma(const Problem& problem, Args& args, WorkspaceParts& parts);

  HeadSlices slices_;
  SlicedTensors inputs_, outputs_;
  std::array<SlicedState, 2> starts_{};  // initial_state, dfinal_state
  SlicedState end_;                      // dinitial_state
  ConstantDecayView gamma_;
  float* gamma_values_ = nullptr;  // [N, H x slices]
  float* dgamma_terms_ = nullptr;  // the same, or of one sequence where they have one gradient
  StateView dgamma_;               // strides `sequence` and `head`
  std::int64_t dgamma_rows_ = 0;
  float dgamma_sign_ = 1;
};

}  // namespace attune::cuda::chunk_mma::backward
