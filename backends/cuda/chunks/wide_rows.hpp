// Copies in f32 of what a backward pass in 16 bits reads and writes by token, for kernels that take
// f32 alone.
//
// They are four times the traffic of the tensors themselves, and the kernel has twice their bytes:
// that is for problems that kernels of 16 bits decline.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/few_tokens.hpp"

namespace attune::cuda {

/// A tensor [B, T, H, D], or [B, T, H] as one of D = 1, and its copy, without gaps.
struct WideTensor {
  void* rows = nullptr;  // of 16 bits
  std::array<std::int64_t, 3> sizes{};
  std::array<std::int64_t, 3> strides{};  // in elements
  int channels = 1;
  int lanes = 1;  // threads of a row: a power of two
  float* copy = nullptr;
  constexpr std::int64_t row_count() const { return sizes[0] * sizes[1] * sizes[2]; }
};
/// Some tensors of a call, which one launch copies.
struct WideTensors {
  static constexpr int kMost = 7;
  std::array<WideTensor, kMost> of{};
  int count = 0;
};

/// q, k, v, the gradient of o and gates, and dq, dk and dv. Gradients of gates are f32 as it is.
class WideRows {
 public:
  // As with_copies.hpp wants them.

  static bool are_wanted(const ops::RecurrentAttentionProblem& problem) {
    return problem.dtype != DType::kF32;
  }
  static ops::RecurrentAttentionProblem made_of(ops::RecurrentAttentionProblem problem);
  /// Of short sequences. Nothing is said of longer ones, so that it comes behind kernels that are made
  /// for 16 bits.
  static std::optional<double> expected_us(const ops::RecurrentAttentionProblem& problem,
                                           std::optional<double> own) {
    if (!own || !has_short_sequences(problem)) return std::nullopt;
    constexpr double kOfLaunch = 2.4;
    constexpr double kBytesPerUs =
        0.6e6;  // of the copies: what they are made of, and reads of them
    return *own + 2 * kOfLaunch + static_cast<double>(bytes(problem)) / kBytesPerUs;
  }
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the tensors of `args` views of their copies in the workspace.
  WideRows(const ops::RecurrentAttentionProblem& problem, ops::RecurrentAttentionBackwardArgs& args,
           std::byte* workspace);

  /// Queues the copies of inputs.
  void load(cudaStream_t stream) const;
  /// Queues the rounding of outputs, to where they go.
  void store(cudaStream_t stream) const;

 private:
  WideTensors inputs_, outputs_;
  DType dtype_;
};

}  // namespace attune::cuda
