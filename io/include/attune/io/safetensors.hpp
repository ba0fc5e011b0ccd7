// Tensor files in the safetensors format: an 8-byte little-endian length, a JSON header, raw data.
// Format: huggingface/safetensors, README.
#pragma once

#include <string>

#include <attune/core/case.hpp>
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

/// Writes to a temporary file beside `path` and renames it, so that a reader never sees half a
/// file. Throws ExecutionError when that fails; `path` is then as it was. Throws InvalidArgument
/// for a tensor that is not in host memory or is called "__metadata__", and for text that is not
/// UTF-8.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace attune::io
