// Cases of recurrent_attention and its aliases, both passes: random ones, and from tensor files.
#include <string>
#include <vector>

#include <attune/core/operand_case.hpp>
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>

#include "attention/attention_rules.hpp"
#include "attention/gate_summands.hpp"

namespace attune::ops {
namespace {

class BackwardCase final : public OperandCase<RecurrentAttentionBackward> {
 public:
  using OperandCase::OperandCase;

 private:
  SummandRms summand_rms(const NamedTensor& output, const TensorMap& expected) const override {
    const std::string& name = output.name;
    const bool of_gamma = name == "dg_gamma" || name == "dslopes";
    if (!of_gamma && name != "dg" && name != "dgk" && name != "dgv") return {};
    return [this, name, of_gamma, each_sequence = output.view.rank() == 2, &expected] {
      const HostArguments host(the_args(), device());
      const GateSummands summands(the_problem(), host.args(), dq_of(expected));
      if (name == "dgv") return summands.rms_of_gv();
      if (of_gamma) return summands.rms_of_gamma(each_sequence);
      const bool per_head = name == "dg" && the_args().dg.has_value();
      return per_head ? summands.rms_of_g() : summands.rms_of_gk();
    };
  }

  std::vector<double> dq_of(const TensorMap& expected) const {
    const auto found = expected.find("dq");
    const TensorView& own = the_args().dq;
    const bool usable =
        found != expected.end() && element_count(found->second.shape()) == element_count(own.shape);
    return to_doubles(usable ? found->second.view() : to_host(own, device()).view());
  }
};

template <class Op>
using CaseOf = std::conditional_t<std::is_same_v<Op, RecurrentAttentionBackward>, BackwardCase,
                                  OperandCase<Op>>;

template <class Op>
std::unique_ptr<Case> case_of_problem(const RecurrentAttentionProblem& problem,
                                      const Device& device, std::uint64_t seed) {
  using Rules = AttentionRules<Op>;
  return random_case<Rules, CaseOf<Op>>(Rules::of(problem), problem, device, seed);
}

/// What an op takes from a file: all of recurrent_attention's inputs but these, and a decay or gk
/// where it needs one. A file for the forward pass may have what the backward pass alone takes.
struct FileRules {
  std::string_view op;
  std::vector<std::string_view> without = {};
  bool needs_gk = false;
  bool needs_constant_decay = false;
};

template <class Op>
std::unique_ptr<Case> case_of_file(const FileRules& of, const TensorMap& tensors,
                                   const Attributes& attributes, const Device& device) {
  std::vector<std::string> known = input_file_names<RecurrentAttentionBackward>(of.without);
  for (std::string& name : input_file_names<Op>(of.without)) known.push_back(std::move(name));
  const FileInputs file(of.op, tensors, attributes, known);
  if (of.needs_gk) file.required("gk");
  AttentionCall<Op> call;
  call.rules.name = of.op;
  call.args.gamma = decay_of_file(of.op, file, of.needs_constant_decay);
  if (const Tensor* bounds = file.find("cu_seqlens"); bounds != nullptr) {
    call.rules.cu_seqlens_host = bounds->view();
  }
  call.rules.scale = file.number("scale");
  call.rules.reverse = file.flag("reverse");
  if constexpr (std::is_same_v<Op, RecurrentAttention>) {
    call.rules.snapshot_every = file.integer("snapshot_every").value_or(0);
    if (const auto seed = file.integer("rounding_seed")) {
      call.rules.state_rounding = stochastic(static_cast<std::uint64_t>(*seed));
    }
  }
  return file_case<AttentionRules<Op>, CaseOf<Op>>(call.rules, file, device, call.args);
}

template <class Alias>
FileRules recurrent_rules() {
  return {.op = Alias::kName};
}
template <class Alias>
FileRules gated_rules() {
  return {.op = Alias::kName, .without = {"g", "gv", "slopes"}, .needs_gk = true};
}
template <class Alias>
FileRules lightning_rules() {
  return {.op = Alias::kName, .without = {"g", "gk", "gv"}, .needs_constant_decay = true};
}

}  // namespace

std::unique_ptr<Case> RecurrentAttention::make_case(const Problem& problem, const Device& device,
                                                    std::uint64_t seed) {
  return case_of_problem<RecurrentAttention>(problem, device, seed);
}

std::unique_ptr<Case> RecurrentAttentionBackward::make_case(const Problem& problem,
                                                            const Device& device,
                                                            std::uint64_t seed) {
  return case_of_problem<RecurrentAttentionBackward>(problem, device, seed);
}

std::unique_ptr<Case> RecurrentAttention::bind_case(const TensorMap& tensors,
                                                    const Attributes& attributes,
                                                    const Device& device) {
  return case_of_file<RecurrentAttention>(recurrent_rules<RecurrentAttention>(), tensors,
                                          attributes, device);
}

std::unique_ptr<Case> RecurrentAttentionBackward::bind_case(const TensorMap& tensors,
                                                            const Attributes& attributes,
                                                            const Device& device) {
  return case_of_file<RecurrentAttentionBackward>(recurrent_rules<RecurrentAttentionBackward>(),
                                                  tensors, attributes, device);
}

std::unique_ptr<Case> GatedLinearAttention::bind_case(const TensorMap& tensors,
                                                      const Attributes& attributes,
                                                      const Device& device) {
  return case_of_file<RecurrentAttention>(gated_rules<GatedLinearAttention>(), tensors, attributes,
                                          device);
}

std::unique_ptr<Case> GatedLinearAttentionBackward::bind_case(const TensorMap& tensors,
                                                              const Attributes& attributes,
                                                              const Device& device) {
  return case_of_file<RecurrentAttentionBackward>(gated_rules<GatedLinearAttentionBackward>(),
                                                  tensors, attributes, device);
}

std::unique_ptr<Case> LightningAttention::bind_case(const TensorMap& tensors,
                                                    const Attributes& attributes,
                                                    const Device& device) {
  return case_of_file<RecurrentAttention>(lightning_rules<LightningAttention>(), tensors,
                                          attributes, device);
}

std::unique_ptr<Case> LightningAttentionBackward::bind_case(const TensorMap& tensors,
                                                            const Attributes& attributes,
                                                            const Device& device) {
  return case_of_file<RecurrentAttentionBackward>(lightning_rules<LightningAttentionBackward>(),
                                                  tensors, attributes, device);
}

}  // namespace attune::ops
