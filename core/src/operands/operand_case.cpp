#include <algorithm>
#include <cstring>

#include <attune/core/error.hpp>
#include <attune/core/operand_case.hpp>

namespace attune::detail {
namespace {

Tensor copy_of(const Tensor& tensor) {
  Tensor copy(tensor.dtype(), tensor.shape());
  if (tensor.bytes() != 0) std::memcpy(copy.view().data, tensor.view().data, tensor.bytes());
  return copy;
}

/// The element types of f32-or-io operands, one after the other: of mixed ones the first is f32.
class GateTypes {
 public:
  GateTypes(int which, DType io) : which_(which), io_(io) {}
  DType next() {
    const bool f32 = which_ == 0 || (which_ == 2 && first_);
    first_ = false;
    return f32 ? DType::kF32 : io_;
  }

 private:
  int which_;
  DType io_;
  bool first_ = true;
};

void add(CaseTensors& tensors, const OperandInfo& operand, Tensor values, const Storage& storage,
         void* args) {
  std::string name(operand.file_name);
  operand.set(args, operand.role == Role::kState
                        ? *tensors.updated(std::move(name), std::move(values), storage)
                        : *tensors.input(std::move(name), std::move(values), storage));
}

}  // namespace

void set_random_inputs(const OperandTable& table, const void* problem, const ElementTypes& types,
                       const Storage& storage, std::uint64_t seed, RandomShape shape_of,
                       RandomIndices indices, CaseTensors& tensors, void* args) {
  RandomValues random(seed);
  GateTypes gates(types.gates, types.io);
  for (const OperandInfo& operand : table.operands) {
    if (operand.is_output() || !operand_given(table, operand, problem)) continue;
    const Storage as = operand.is_in_layout ? storage : Storage();
    if (operand.types == Types::kIndex) {
      add(tensors, operand, indices(operand, random), as, args);
      continue;
    }
    const DType dtype = operand.types == Types::kIo        ? types.io
                        : operand.types == Types::kState   ? types.state
                        : operand.types == Types::kF32OrIo ? gates.next()
                                                           : DType::kF32;
    const Extents shape = shape_of(operand);
    const RandomRange& range = operand.random;
    add(tensors, operand,
        range.even ? random.uniform(dtype, shape, range.low, range.high)
                   : random.normal(dtype, shape, range.deviation),
        as, args);
  }
}

void set_file_inputs(const OperandTable& table, const FileInputs& file, CaseTensors& tensors,
                     void* args) {
  for (const OperandInfo& operand : table.operands) {
    if (operand.is_output()) continue;
    const Tensor* given =
        operand.optional ? file.find(operand.file_name) : &file.required(operand.file_name);
    if (given != nullptr) add(tensors, operand, copy_of(*given), {}, args);
  }
}

void set_outputs(const OperandTable& table, const OperandCheck& check, const void* problem,
                 const ElementTypes& types, const Storage& storage, CaseTensors& tensors,
                 void* args) {
  for (std::size_t i = 0; i < table.operands.size(); ++i) {
    const OperandInfo& operand = table.operands[i];
    if (!operand.is_output()) continue;
    if (operand.gradient_of >= 0) {
      if (!check.view(static_cast<std::size_t>(operand.gradient_of)).given()) continue;
    } else if (problem != nullptr && !operand_given(table, operand, problem)) {
      continue;
    }
    const int excluded_by = operand.not_with;
    if (excluded_by >= 0 && check.view(static_cast<std::size_t>(excluded_by)).given()) continue;
    const int at = static_cast<int>(i);
    const bool is_state_of_problem = operand.types == Types::kState && problem != nullptr;
    operand.set(
        args, *tensors.output(std::string(check.name_of(at)),
                              is_state_of_problem ? types.state : check.output_type(at),
                              check.output_shape(at), operand.is_in_layout ? storage : Storage()));
  }
}

std::vector<std::string> input_file_names(const OperandTable& table,
                                          const std::vector<std::string_view>& without) {
  std::vector<std::string> names;
  for (const OperandInfo& operand : table.operands) {
    const bool left_out = std::find(without.begin(), without.end(), operand.name) != without.end();
    if (!operand.is_output() && !left_out) names.emplace_back(operand.file_name);
  }
  return names;
}

}  // namespace attune::detail
