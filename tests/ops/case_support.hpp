// Cases of any op by the text of their problem, and their tensors by name.
#pragma once

#include <memory>
#include <string_view>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/op.hpp>
#include <attune/core/params.hpp>
#include <attune/core/registry.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>
#include <attune/ops/register.hpp>

namespace attune::test {

inline const Registry& all_ops() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    return made;
  }();
  return registry;
}

inline std::unique_ptr<Case> make_case(std::string_view op, std::string_view problem,
                                       std::uint64_t seed = 1,
                                       const Device& device = cpu_device()) {
  const OpInfo& info = all_ops().op(op);
  return info.make_case(info.parse(parse_params(problem, ' ')), device, seed);
}

template <class Op>
const typename Op::Args& args_of(const Case& made) {
  return *static_cast<const typename Op::Args*>(made.args());
}

/// An output of a case on the host, to be written as a kernel would.
inline TensorView output_of(const Case& made, std::string_view name) {
  for (const NamedTensor& output : made.outputs()) {
    if (output.name != name) continue;
    return {const_cast<void*>(output.view.data), output.view.dtype, output.view.shape,
            output.view.strides};
  }
  throw InvalidArgument(str("the case has no output ", name));
}

/// Every element of a dense f32 output := `value`.
inline void fill(const Case& made, std::string_view name, float value) {
  const TensorView view = output_of(made, name);
  for (std::int64_t i = 0; i < element_count(view.shape); ++i)
    static_cast<float*>(view.data)[i] = value;
}

inline Tensor filled(const Extents& shape, float value) {
  Tensor tensor(DType::kF32, shape);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

/// The check of one output.
inline OutputCheck check_of(const Case& made, const TensorMap& expected, std::string_view name) {
  for (const OutputCheck& check : made.compare(expected)) {
    if (check.name == name) return check;
  }
  throw InvalidArgument(str("the case does not check ", name));
}

}  // namespace attune::test
