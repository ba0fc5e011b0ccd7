// Cases of recurrent_attention and its aliases from tensor files.
#include <array>
#include <span>
#include <utility>

#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>

#include "attention_case.hpp"
#include "file_inputs.hpp"

namespace attune::ops {
namespace {

constexpr std::array<std::string_view, 12> kRecurrentInputs{"q",
                                                            "k",
                                                            "v",
                                                            "g",
                                                            "g_gamma",
                                                            "gk",
                                                            "gv",
                                                            "initial_state",
                                                            "cu_seqlens",
                                                            "do",
                                                            "dfinal_state",
                                                            "slopes"};
constexpr std::array<std::string_view, 9> kGatedInputs{
    "q", "k", "v", "gk", "g_gamma", "initial_state", "cu_seqlens", "do", "dfinal_state"};
constexpr std::array<std::string_view, 9> kLightningInputs{
    "q", "k", "v", "slopes", "g_gamma", "initial_state", "cu_seqlens", "do", "dfinal_state"};

/// What an op takes from a file.
struct FileRules {
  std::string_view op;
  std::span<const std::string_view> names;
  bool needs_gk = false;
  bool needs_constant_decay = false;
};

/// The inputs of both passes, on the device.
class BoundInputs {
 public:
  BoundInputs(const FileRules& rules, const TensorMap& tensors, const Attributes& attributes,
              const Device& device)
      : tensors_(device), file_(rules.op, tensors, attributes, rules.names, tensors_) {
    in_.op = rules.op;
    in_.q = file_.required("q");
    in_.k = file_.required("k");
    in_.v = file_.required("v");
    in_.g = file_.optional("g");
    in_.gk = rules.needs_gk ? file_.required("gk") : file_.optional("gk");
    in_.gv = file_.optional("gv");
    in_.decay = file_.decay(rules.needs_constant_decay);
    in_.initial_state = file_.optional("initial_state");
    in_.cu_seqlens = file_.optional("cu_seqlens");
    if (const Tensor* bounds = file_.host("cu_seqlens"); bounds != nullptr) {
      cu_seqlens_host_ = bounds->view();
      in_.cu_seqlens_host = &cu_seqlens_host_;
    }
    in_.scale = file_.number("scale");
    in_.reverse = file_.flag("reverse");
    file_.warn_of_unread_attributes();
  }
  BoundInputs(const BoundInputs&) = delete;  // in_ points into it
  BoundInputs& operator=(const BoundInputs&) = delete;

  FileInputs& file() { return file_; }
  const AttentionInputs& inputs() const { return in_; }
  CaseTensors take_tensors() { return std::move(tensors_); }

 private:
  CaseTensors tensors_;
  FileInputs file_;
  ConstTensorView cu_seqlens_host_;
  AttentionInputs in_;
};

std::unique_ptr<Case> bind_forward(const FileRules& rules, const TensorMap& tensors,
                                   const Attributes& attributes, const Device& device) {
  BoundInputs bound(rules, tensors, attributes, device);
  return forward_case(bound.take_tensors(), bound.inputs(), true, {});
}

std::unique_ptr<Case> bind_backward(const FileRules& rules, const TensorMap& tensors,
                                    const Attributes& attributes, const Device& device) {
  BoundInputs bound(rules, tensors, attributes, device);
  const AttentionOutputGradients gradients{.d_o = bound.file().optional("do"),
                                           .dfinal_state = bound.file().optional("dfinal_state"),
                                           .d_o_name = "do"};
  return backward_case(bound.take_tensors(), bound.inputs(), gradients, {});
}

FileRules recurrent_rules(std::string_view op) { return {.op = op, .names = kRecurrentInputs}; }
FileRules gated_rules(std::string_view op) {
  return {.op = op, .names = kGatedInputs, .needs_gk = true};
}
FileRules lightning_rules(std::string_view op) {
  return {.op = op, .names = kLightningInputs, .needs_constant_decay = true};
}

}  // namespace

std::unique_ptr<Case> RecurrentAttention::bind_case(const TensorMap& tensors,
                                                    const Attributes& attributes,
                                                    const Device& device) {
  return bind_forward(recurrent_rules(kName), tensors, attributes, device);
}

std::unique_ptr<Case> RecurrentAttentionBackward::bind_case(const TensorMap& tensors,
                                                            const Attributes& attributes,
                                                            const Device& device) {
  return bind_backward(recurrent_rules(kName), tensors, attributes, device);
}

std::unique_ptr<Case> GatedLinearAttention::bind_case(const TensorMap& tensors,
                                                      const Attributes& attributes,
                                                      const Device& device) {
  return bind_forward(gated_rules(kName), tensors, attributes, device);
}

std::unique_ptr<Case> GatedLinearAttentionBackward::bind_case(const TensorMap& tensors,
                                                              const Attributes& attributes,
                                                              const Device& device) {
  return bind_backward(gated_rules(kName), tensors, attributes, device);
}

std::unique_ptr<Case> LightningAttention::bind_case(const TensorMap& tensors,
                                                    const Attributes& attributes,
                                                    const Device& device) {
  return bind_forward(lightning_rules(kName), tensors, attributes, device);
}

std::unique_ptr<Case> LightningAttentionBackward::bind_case(const TensorMap& tensors,
                                                            const Attributes& attributes,
                                                            const Device& device) {
  return bind_backward(lightning_rules(kName), tensors, attributes, device);
}

}  // namespace attune::ops
