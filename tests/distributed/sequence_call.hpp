// The tensors of a call on whole sequences, or on one rank's pieces of them, on a device and in the
// types and layout that it asks for.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>

#include "distributed/whole_sequences.hpp"

namespace attune::test {

class SequenceCall {
 public:
  /// Outputs are NaN. `of` must outlive this.
  explicit SequenceCall(const WholeSequences& of, const Device& device = cpu_device());

  const WholeSequences& in() const { return in_; }
  ConstTensorView q() const { return inputs_.at("q"); }
  ConstTensorView k() const { return inputs_.at("k"); }
  ConstTensorView v() const { return inputs_.at("v"); }
  ConstTensorView gk() const { return inputs_.at("gk"); }

  ops::RecurrentAttentionOptions recurrent(const ops::CallOptions& call) const;
  ops::GatedLinearAttentionOptions gated(const ops::CallOptions& call) const;
  ops::LightningAttentionOptions lightning(const ops::CallOptions& call) const;

  ops::RecurrentAttentionOutputs outputs() const;
  ops::RecurrentAttentionOutputGradients gradients() const;
  ops::RecurrentAttentionGradientOutputs gradient_outputs() const;
  ops::LightningAttentionGradientOutputs lightning_outputs() const;

  ops::RecurrentAttentionArgs forward_args(const ops::CallOptions& call) const;
  ops::RecurrentAttentionBackwardArgs backward_args(const ops::CallOptions& call) const;

  /// The outputs as they are now, dense.
  Results results() const;

 private:
  TensorView add(DType dtype, std::int64_t heads, std::int64_t width);
  TensorView moved(TensorView view);
  void add_input(std::string name, const std::vector<float>& values, DType dtype,
                 std::int64_t heads, std::int64_t width);
  void add_output(std::string name, DType dtype, std::int64_t heads, std::int64_t width);
  void add_dense_input(std::string name, Tensor values);
  void add_dense_output(std::string name, const Extents& shape);
  bool has_sequences() const { return in_.sequences() > 0; }  // a rank may have none
  Extents state_shape() const { return {in_.sequences(), in_.H, in_.K, in_.V}; }
  const ConstTensorView& input(std::string_view name) const { return inputs_.find(name)->second; }
  TensorView output(std::string_view name) const { return outputs_.find(name)->second; }
  OptionalTensorView output_if(std::string_view name) const;
  template <class Options>
  Options shared_options(const ops::CallOptions& call) const;

  const WholeSequences& in_;
  const Device& device_;
  std::deque<Tensor> memory_;
  std::map<std::string, ConstTensorView, std::less<>> inputs_;
  std::map<std::string, TensorView, std::less<>> outputs_;
};

}  // namespace attune::test
