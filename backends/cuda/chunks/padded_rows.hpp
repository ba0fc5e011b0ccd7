// Copies of tensors whose rows start at multiples of 16 bytes, for kernels that take no others.
//
// Rows of an odd number of channels, slices that begin anywhere and strides of 0 or less are copied
// to the workspace, rows padded with zeros to a multiple of 16 bytes; outputs go the other way. It
// takes about three times the traffic that the problem needs, where a walk token by token takes a
// hundred times its time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

/// A tensor [B, T, H, D] and its copy.
struct PaddedRows {
  std::byte* rows = nullptr;  // the tensor's
  std::array<std::int64_t, 3> sizes{};
  std::array<std::int64_t, 3> strides{};  // in elements
  std::byte* copy = nullptr;
  int channels = 0;  // D
  int padded = 0;    // of the copy: a multiple of kRowPiece
  int width = 0;     // bytes of an element
};
inline constexpr int kRowPiece = 8;  // channels that a thread takes
constexpr std::int64_t padded_channels(std::int64_t channels) {
  return (channels + kRowPiece - 1) / kRowPiece * kRowPiece;
}

/// Whether the descriptors of tensor maps can say where the rows of q, k, v and o lie.
bool has_tensor_maps(const ops::RecurrentAttentionArgs& args);

/// The output of a problem, written to the workspace first.
class PaddedOutput {
 public:
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes `args.o` the place in the workspace.
  PaddedOutput(ops::RecurrentAttentionArgs& args, std::byte* workspace);

  /// What no sequence writes is zero then.
  void clear(cudaStream_t stream) const;
  /// To where the output was to go, or to what is there.
  void copy(cudaStream_t stream) const;
  void add(cudaStream_t stream) const;

 private:
  PaddedRows rows_;
  DType dtype_;
  bool packed_;
};

/// Copies of a problem's inputs in the workspace.
class PaddedInputs {
 public:
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the inputs of `args` views of their copies.
  PaddedInputs(ops::RecurrentAttentionArgs& args, std::byte* workspace);

  void copy(cudaStream_t stream) const;

 private:
  static constexpr int kMost = 5;
  std::array<PaddedRows, kMost> rows_{};
  int count_ = 0;
};

}  // namespace attune::cuda
