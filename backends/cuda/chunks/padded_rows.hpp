// Copies of tensors whose rows start at multiples of 16 bytes, for kernels that take no others.
//
// Tensors with rows of an odd number of channels, slices that begin anywhere and those with strides
// of 0 or less are copied to the workspace, rows padded with zeros to a multiple of 16 bytes; outputs
// go the other way. It takes about three times the traffic that the problem needs, where kernels that
// take any rows take a hundred times its time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/row_moves.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda {

/// Whether all rows start at multiples of 16 bytes and have a multiple of them.
inline bool has_whole_rows(const ops::RecurrentAttentionProblem& problem) {
  return problem.aligned && problem.K % kRowPiece == 0 && problem.V % kRowPiece == 0;
}

/// Whether the descriptors of tensor maps can say where the rows of q, k, v and o lie; in the
/// backward pass, of the gradients and not of o.
bool has_tensor_maps(const ops::RecurrentAttentionArgs& args);
bool has_tensor_maps(const ops::RecurrentAttentionBackwardArgs& args);

/// What launches are expected to take that move so many bytes, each read and written, in microseconds.
constexpr double moves_us(double launches, std::size_t bytes) {
  constexpr double kOfLaunch = 2.4, kBytesPerUs = 1.2e6;
  return launches * kOfLaunch + static_cast<double>(bytes) / kBytesPerUs;
}

// Args are those of either pass; bytes() counts what its constructor takes of the workspace.

/// The output of a problem, written to the workspace first: o; of a backward pass dq, dk and dv.
/// Of rows that no sequence has, kernels write zeros to o; of gradients, rows_behind.hpp does.
class PaddedOutput {
 public:
  template <class Args = ops::RecurrentAttentionArgs>
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the outputs of `args` that kernels do not take as they lie views of places in the workspace.
  template <class Args>
  PaddedOutput(Args& args, std::byte* workspace);

  /// To where the output was to go.
  void copy(cudaStream_t stream) const;

 private:
  PaddedTensors tensors_;
};

/// Outputs that are written to the workspace, and then added to what is where they were to go.
class AddedOutputs {
 public:
  explicit AddedOutputs(std::byte* workspace) : parts_(workspace) {}

  /// Makes `out` a view of a place in the workspace: [B, T, H, D], or two or three dimensions of single
  /// elements. Where a stride is 0, what the dimension's elements add is one sum.
  void redirect(TensorView& out);

  /// Those that are not fp32 are of the type.
  void add(DType dtype, cudaStream_t stream) const;

 private:
  WorkspaceParts parts_;
  PaddedTensors tensors_;
};

/// Copies of a problem's inputs in the workspace: q, k, v, gk and gv; of a backward pass q, k, v
/// and the gradient of o, as its kernels take gates that start anywhere.
class PaddedInputs {
 public:
  template <class Args>
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the inputs of `args` that kernels do not take as they lie views of their copies.
  template <class Args>
  PaddedInputs(Args& args, std::byte* workspace);

  void copy(cudaStream_t stream) const;

 private:
  PaddedTensors tensors_;
};

}  // namespace attune::cuda
