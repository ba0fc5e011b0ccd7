// Rows that move to copies in which each starts at a multiple of 16 bytes, and back.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <attune/core/dtype.hpp>

namespace attune::cuda {

/// A tensor [B, T, H, D] and its copy.
struct PaddedRows {
  std::byte* rows = nullptr;  // the tensor's
  std::array<std::int64_t, 3> sizes{};
  std::array<std::int64_t, 3> strides{};  // in elements
  std::byte* copy = nullptr;
  int channels = 0;           // D
  int padded = 0;             // of the copy: a multiple of kRowPiece
  int width = 0;              // bytes of an element
  bool has_pieces = false;    // rows are of whole ones, which start at multiples of 16 bytes
  bool is_dense = false;      // rows follow each other without gaps
  std::int64_t of_block = 0;  // pieces of a block, in a launch
};
inline constexpr int kRowPiece = 8;  // channels that a thread takes
constexpr std::int64_t padded_channels(std::int64_t channels) {
  return (channels + kRowPiece - 1) / kRowPiece * kRowPiece;
}

/// Some tensors of a call, which one launch moves.
struct PaddedTensors {
  static constexpr int kMost = 7;
  std::array<PaddedRows, kMost> of{};
  int count = 0;
};

/// To the copies, zeros behind each row's end.
void copy_rows(const PaddedTensors& tensors, cudaStream_t stream);
/// From the copies to where the rows were.
void put_rows_back(const PaddedTensors& tensors, cudaStream_t stream);
/// Adds the copies to what is there. Tensors are fp32 or of the type.
void add_rows(const PaddedTensors& tensors, DType dtype, cudaStream_t stream);

}  // namespace attune::cuda
