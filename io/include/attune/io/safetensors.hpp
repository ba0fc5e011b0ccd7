// Tensor files in the safetensors format: an 8-byte little-endian length, a JSON header, raw data.
// Format: huggingface/safetensors, README.
#pragma once

#include <string>
#include <string_view>

#include <attune/core/case.hpp>
#include <attune/core/output_file.hpp>
#include <attune/core/tensor.hpp>

namespace attune::io {

struct TensorFile {
  TensorMap tensors;
  Attributes attributes;  // the header's "__metadata__"
};

/// Reads F32, F16, BF16, I32 and I64 tensors. Throws InvalidArgument, naming the file and what is
/// wrong with it: it is not there or too short; its header is not JSON or larger than 64 MiB; a
/// tensor has another dtype, or a shape that does not match its bytes; offsets overlap, leave gaps,
/// or lie outside of the file.
TensorFile read_safetensors(const std::string& path);

/// What write_safetensors() may replace: another tensor file.
inline constexpr OutputFile::Kind kTensorFiles{
    .name = "tensor file", .is_ours = [](std::string_view head) {
      constexpr std::size_t kLength = 8;  // bytes of the header's length, which comes first
      return head.size() > kLength && head[kLength] == '{';
    }};

/// Writes `file` to `to`, which was opened with kTensorFiles, and commits it. Throws ExecutionError
/// when that fails; what was at the path is then still there. Throws InvalidArgument for a tensor
/// that is not in host memory or is called "__metadata__", and for text that is not UTF-8.
void write_safetensors(OutputFile& to, const TensorFile& file);

/// The same for a path. Throws ExecutionError when OutputFile (core/output_file.hpp) refuses it.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace attune::io
