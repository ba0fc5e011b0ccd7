#include "attention_case.hpp"

#include <utility>

#include "gate_summands.hpp"
#include "op_case.hpp"

namespace attune::ops {
namespace {

class BackwardCase final : public OpCase<RecurrentAttentionBackward> {
 public:
  using OpCase::OpCase;

 private:
  SummandRms summand_rms(const NamedTensor& output, const TensorMap& expected) const override {
    const std::string& name = output.name;
    const bool of_gamma = name == "dg_gamma" || name == "dslopes";
    if (!of_gamma && name != "dg" && name != "dgk" && name != "dgv") return {};
    return [this, name, of_gamma, each_sequence = output.view.rank() == 2, &expected] {
      const HostArguments host(call().args, device());
      const RecurrentAttentionProblem& problem = call().problem;
      if (name == "dgv") return summand_rms_of_gv(problem, host.args());
      const std::vector<double> dq = dq_of(expected);
      if (of_gamma) return summand_rms_of_gamma(problem, host.args(), dq, each_sequence);
      const bool per_head = name == "dg" && call().args.dg.has_value();
      return per_head ? summand_rms_of_g(problem, host.args(), dq)
                      : summand_rms_of_gk(host.args(), dq);
    };
  }

  std::vector<double> dq_of(const TensorMap& expected) const {
    const auto found = expected.find("dq");
    const TensorView& own = call().args.dq;
    const bool usable =
        found != expected.end() && element_count(found->second.shape()) == element_count(own.shape);
    return to_doubles(usable ? found->second.view() : to_host(own, device()).view());
  }
};

}  // namespace

std::unique_ptr<Case> forward_case(CaseTensors tensors, const AttentionInputs& in,
                                   bool want_final_state, const Placement& rows) {
  const AttentionSizes sizes = check_inputs(in);
  AttentionOutputs out;
  out.o = tensors.output("o", in.q->dtype, output_shape(in, sizes), rows);
  if (want_final_state) {
    out.final_state =
        tensors.output("final_state", DType::kF32, {sizes.sequences, sizes.H, sizes.K, sizes.V});
  }
  const auto call = lower_forward(in, out, Look::kAll);
  return std::make_unique<OpCase<RecurrentAttention>>(std::move(tensors), call);
}

std::unique_ptr<Case> backward_case(CaseTensors tensors, const AttentionInputs& in,
                                    const AttentionOutputGradients& gradients,
                                    const Placement& rows) {
  check_inputs(in);
  const auto gradient_of = [&](const char* name, const ConstTensorView* input) {
    return input == nullptr ? nullptr : tensors.output(name, DType::kF32, input->shape);
  };
  AttentionGradientOutputs out;
  out.dq = tensors.output("dq", in.q->dtype, in.q->shape, rows);
  out.dk = tensors.output("dk", in.q->dtype, in.k->shape, rows);
  out.dv = tensors.output("dv", in.q->dtype, in.v->shape, rows);
  out.dg = gradient_of("dg", in.g);
  out.dgamma =
      gradient_of(in.decay.slopes != nullptr ? "dslopes" : "dg_gamma", decay_values(in.decay));
  out.dgk = gradient_of("dgk", in.gk);
  out.dgv = gradient_of("dgv", in.gv);
  out.dinitial_state = gradient_of("dinitial_state", in.initial_state);
  const auto call = lower_backward(in, gradients, out, Look::kAll);
  return std::make_unique<BackwardCase>(std::move(tensors), call);
}

}  // namespace attune::ops
