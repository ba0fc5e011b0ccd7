// Tensor files as `run` and `check` use them: inputs and what is expected of the outputs.
#pragma once

#include <memory>
#include <string>

#include <attune/io/safetensors.hpp>

#include "problems/command_context.hpp"

namespace attune::cli {

struct CaseFile {
  io::TensorFile inputs;  // without expect.*
  TensorMap expected;     // by output name: expect.o is "o"
};

/// Throws InvalidArgument, naming the file.
CaseFile read_inputs(const std::string& path);

/// A case over a file's tensors. Throws UsageError for an op that takes no files.
std::unique_ptr<Case> bind_case(const OpInfo& op, const io::TensorFile& inputs,
                                const Device& device);

/// The op that computes the gradients of `op`, or nullptr.
const OpInfo* find_backward(const CommandContext& command, const OpInfo& op);
/// The same. Throws UsageError when there is none.
const OpInfo& backward_of(const CommandContext& command, const OpInfo& op);

}  // namespace attune::cli
