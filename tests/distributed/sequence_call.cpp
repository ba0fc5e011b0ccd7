#include "distributed/sequence_call.hpp"

#include <limits>

namespace attune::test {
namespace {

using ops::CallOptions;
using Name = WholeSequences::Name;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kLayer = 1, kLayers = 3;

/// Element i of a view, in row-major order, becomes value(i).
template <class Value>
void set_each(const TensorView& to, const Value& value) {
  for (std::int64_t i = 0; i < element_count(to.shape); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int dim = to.rank() - 1; dim >= 0; --dim) {
      offset += rest % to.size(dim) * to.stride(dim);
      rest /= to.size(dim);
    }
    if (to.dtype == DType::kBF16) {
      static_cast<bf16*>(to.data)[offset] = bf16(value(i));
    } else {
      static_cast<float*>(to.data)[offset] = value(i);
    }
  }
}

}  // namespace

SequenceCall::SequenceCall(const WholeSequences& of, const Device& device)
    : in_(of), device_(device) {
  const WholeGates& gates = in_.gates;
  add_input("q", in_.q, in_.dtype, in_.H, in_.K);
  add_input("k", in_.k, in_.dtype, in_.Hkv, in_.K);
  add_input("v", in_.v, in_.dtype, in_.Hkv, in_.V);
  add_input("d_o", in_.d_o, in_.dtype, in_.H, in_.V);
  if (gates.g) add_input("g", in_.g, DType::kF32, in_.H, 0);
  if (gates.gk) add_input("gk", in_.gk, DType::kF32, in_.H, in_.K);
  if (gates.gv) add_input("gv", in_.gv, DType::kF32, in_.H, in_.V);
  add_output("o", in_.dtype, in_.H, in_.V);
  add_output("dq", in_.dtype, in_.H, in_.K);
  add_output("dk", in_.dtype, in_.Hkv, in_.K);
  add_output("dv", in_.dtype, in_.Hkv, in_.V);
  if (gates.g) add_output("dg", DType::kF32, in_.H, 0);
  if (gates.gk) add_output("dgk", DType::kF32, in_.H, in_.K);
  if (gates.gv) add_output("dgv", DType::kF32, in_.H, in_.V);
  if (gates.gamma) {
    const Extents shape = in_.gamma_rows ? Extents{in_.sequences(), in_.H} : Extents{in_.H};
    add_dense_input("gamma", Tensor::of(in_.gamma, shape));
    add_dense_output("dgamma", shape);
  }
  if (!has_sequences()) return;
  add_dense_input("cu_seqlens", Tensor::of(in_.cu_seqlens, {in_.sequences() + 1}));
  if (in_.states) {
    add_dense_input("initial_state", Tensor::of(in_.initial_state, state_shape()));
    add_dense_input("dfinal_state", Tensor::of(in_.dfinal_state, state_shape()));
  }
  add_dense_output("final_state", state_shape());
  if (in_.states) add_dense_output("dinitial_state", state_shape());
}

/// A tensor [1, T, heads, width], or [1, T, heads] for no width.
TensorView SequenceCall::add(DType dtype, std::int64_t heads, std::int64_t width) {
  const std::int64_t T = in_.tokens();
  if (width == 0) return memory_.emplace_back(dtype, Extents{1, T, heads}).view();
  if (!in_.heads_first) return memory_.emplace_back(dtype, Extents{1, T, heads, width}).view();
  return memory_.emplace_back(dtype, Extents{1, heads, T, width}).view().permute({0, 2, 1, 3});
}

/// The newest tensor goes to the device, if that is another one than the host; `view` is of it.
TensorView SequenceCall::moved(TensorView view) {
  if (device_.info().id == DeviceId{}) return view;
  Tensor& tensor = memory_.back();
  Tensor copy(tensor.dtype(), tensor.shape(), device_);
  if (tensor.bytes() > 0) {
    device_.copy_to_device(copy.view().data, tensor.view().data, tensor.bytes(), nullptr);
    device_.synchronize(nullptr);
  }
  tensor = std::move(copy);
  view.data = tensor.view().data;
  view.device = tensor.view().device;
  return view;
}

void SequenceCall::add_input(std::string name, const std::vector<float>& values, DType dtype,
                             std::int64_t heads, std::int64_t width) {
  const TensorView view = add(dtype, heads, width);
  set_each(view, [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  inputs_.emplace(std::move(name), moved(view));
}

void SequenceCall::add_dense_input(std::string name, Tensor values) {
  inputs_.emplace(std::move(name), moved(memory_.emplace_back(std::move(values)).view()));
}

void SequenceCall::add_output(std::string name, DType dtype, std::int64_t heads,
                              std::int64_t width) {
  const TensorView view = add(dtype, heads, width);
  set_each(view, [](std::int64_t) { return kNaN; });
  outputs_.emplace(std::move(name), moved(view));
}

void SequenceCall::add_dense_output(std::string name, const Extents& shape) {
  const TensorView view = memory_.emplace_back(DType::kF32, shape).view();
  set_each(view, [](std::int64_t) { return kNaN; });
  outputs_.emplace(std::move(name), moved(view));
}

OptionalTensorView SequenceCall::output_if(std::string_view name) const {
  if (!outputs_.contains(name)) return {};
  return output(name);
}

/// Options that all ops have.
template <class Options>
Options SequenceCall::shared_options(const CallOptions& call) const {
  Options options;
  if (has_sequences()) {
    options.cu_seqlens = input("cu_seqlens");
    if (in_.states) options.initial_state = input("initial_state");
    options.want_final_state = true;
  }
  if (in_.gates.gamma && in_.name != Name::kSlopes) options.g_gamma = input("gamma");
  options.reverse = in_.reverse;
  options.call = call;
  return options;
}

ops::RecurrentAttentionOptions SequenceCall::recurrent(const CallOptions& call) const {
  auto options = shared_options<ops::RecurrentAttentionOptions>(call);
  if (in_.gates.g) options.g = inputs_.at("g");
  if (in_.gates.gk) options.gk = gk();
  if (in_.gates.gv) options.gv = inputs_.at("gv");
  return options;
}

ops::GatedLinearAttentionOptions SequenceCall::gated(const CallOptions& call) const {
  return shared_options<ops::GatedLinearAttentionOptions>(call);
}

ops::LightningAttentionOptions SequenceCall::lightning(const CallOptions& call) const {
  auto options = shared_options<ops::LightningAttentionOptions>(call);
  if (in_.name == Name::kLayer) {
    options.layer_idx = kLayer;
    options.num_layers = kLayers;
  } else {
    options.slopes = input("gamma");
  }
  return options;
}

ops::RecurrentAttentionOutputs SequenceCall::outputs() const {
  return {.o = output("o"), .final_state = output_if("final_state")};
}

ops::RecurrentAttentionOutputGradients SequenceCall::gradients() const {
  ops::RecurrentAttentionOutputGradients from{.d_o = inputs_.at("d_o")};
  if (in_.states && has_sequences()) from.dfinal_state = input("dfinal_state");
  return from;
}

ops::RecurrentAttentionGradientOutputs SequenceCall::gradient_outputs() const {
  return {.dq = output("dq"),
          .dk = output("dk"),
          .dv = output("dv"),
          .dg = output_if("dg"),
          .dg_gamma = output_if("dgamma"),
          .dgk = output_if("dgk"),
          .dgv = output_if("dgv"),
          .dinitial_state = output_if("dinitial_state")};
}

ops::LightningAttentionGradientOutputs SequenceCall::lightning_outputs() const {
  return {.dq = output("dq"),
          .dk = output("dk"),
          .dv = output("dv"),
          .dslopes = output_if("dgamma"),
          .dinitial_state = output_if("dinitial_state")};
}

ops::RecurrentAttentionArgs SequenceCall::forward_args(const CallOptions& call) const {
  if (in_.name == Name::kRecurrent) {
    return ops::recurrent_attention_args(outputs(), q(), k(), v(), recurrent(call));
  }
  if (in_.name == Name::kGated) {
    return ops::recurrent_attention_args(outputs(), q(), k(), v(), ops::lowered(gk(), gated(call)));
  }
  return ops::lightning_attention_args(outputs(), q(), k(), v(), lightning(call));
}

ops::RecurrentAttentionBackwardArgs SequenceCall::backward_args(const CallOptions& call) const {
  if (in_.name == Name::kRecurrent) {
    return ops::recurrent_attention_backward_args(gradient_outputs(), q(), k(), v(), gradients(),
                                                  recurrent(call));
  }
  if (in_.name == Name::kGated) {
    return ops::recurrent_attention_backward_args(gradient_outputs(), q(), k(), v(), gradients(),
                                                  ops::lowered(gk(), gated(call)));
  }
  return ops::lightning_attention_backward_args(lightning_outputs(), q(), k(), v(), gradients(),
                                                lightning(call));
}

Results SequenceCall::results() const {
  Results all;
  for (const auto& [name, view] : outputs_) {
    const std::vector<double> values = to_doubles(to_host(view, device_));
    all.emplace(name, std::vector<float>(values.begin(), values.end()));
  }
  return all;
}

}  // namespace attune::test
