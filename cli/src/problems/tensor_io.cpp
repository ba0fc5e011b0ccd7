#include "problems/tensor_io.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kExpected = "expect.";

}  // namespace

CaseFile read_inputs(const std::string& path) {
  io::TensorFile file = io::read_safetensors(path);
  CaseFile parts;
  parts.inputs.attributes = std::move(file.attributes);
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kExpected)) {
      parts.expected.emplace(name.substr(kExpected.size()), std::move(tensor));
    } else {
      parts.inputs.tensors.emplace(name, std::move(tensor));
    }
  }
  return parts;
}

std::unique_ptr<Case> bind_case(const OpInfo& op, const io::TensorFile& inputs,
                                const Device& device) {
  if (op.bind_case == nullptr)
    throw UsageError(str("op '", op.name, "' does not run on files; give a SPEC"));
  return op.bind_case(inputs.tensors, inputs.attributes, device);
}

const OpInfo* find_backward(const CommandContext& command, const OpInfo& op) {
  return command.registry().find_op(str(op.name, ".backward"));
}

const OpInfo& backward_of(const CommandContext& command, const OpInfo& op) {
  if (const OpInfo* found = find_backward(command, op)) return *found;
  throw UsageError(str("--backward: op '", op.name, "' has no backward pass"));
}

}  // namespace attune::cli
