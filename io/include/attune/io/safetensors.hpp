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
/// wrong with it: not there, too short, a header that is not JSON or larger than 64 MiB, a dtype
/// that attune has not, offsets that overlap, leave gaps or leave the file, a shape that does not
/// match its bytes.
TensorFile read_safetensors(const std::string& path);

/// Tensor files, to be replaced by others.
inline constexpr OutputFile::Kind kTensorFiles{
    .name = "tensor file", .is_ours = [](std::string_view head) {
      constexpr std::size_t kLength = 8;  // of the header's length, which stands first
      return head.size() > kLength && head[kLength] == '{';
    }};

/// Makes `to`, which was opened for kTensorFiles, the tensor file, and puts it in place. Throws
/// ExecutionError when that fails; the path is then as it was. Throws InvalidArgument for a tensor
/// that is not in host memory or is called "__metadata__", and for text that is not UTF-8.
void write_safetensors(OutputFile& to, const TensorFile& file);

/// The same for a path, which may be as core/output_file.hpp says. Throws ExecutionError when it may
/// not.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace attune::io
