// Made-up cases of recurrent_attention, both passes.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <attune/ops/recurrent_attention_op.hpp>

#include "attention_case.hpp"
#include "made_inputs.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentAttentionProblem;

/// Where the sequences of `tokens` packed tokens begin and end. Of several, the first is longer
/// than the others, and of three or more, one is empty.
std::vector<std::int64_t> sequence_bounds(std::int64_t sequences, std::int64_t tokens,
                                          RandomValues& random) {
  std::vector<double> weights{0};
  for (std::int64_t n = 0; n < sequences; ++n) {
    const bool empty = n == 1 && sequences >= 3;
    weights.push_back(weights.back() + (empty ? 0 : (n == 0 ? 3.5 : 0.5) + random.next()));
  }
  std::vector<std::int64_t> bounds;
  bounds.reserve(weights.size());
  for (const double weight : weights) {
    bounds.push_back(std::llround(static_cast<double>(tokens) * weight / weights.back()));
  }
  return bounds;
}

Tensor index_tensor(const std::vector<std::int64_t>& values) {
  const Extents shape{static_cast<std::int64_t>(values.size())};
  if (values.back() > std::numeric_limits<std::int32_t>::max()) return Tensor::of(values, shape);
  return Tensor::of(std::vector<std::int32_t>(values.begin(), values.end()), shape);
}

/// The inputs of a problem, one after the other, each from its own random stream.
class MadeInputs {
 public:
  MadeInputs(const Problem& problem, const Device& device, std::uint64_t seed)
      : p_(problem),
        tensors_(device),
        random_(seed),
        rows_(placement_of<RecurrentAttention>(problem)) {
    in_.op = RecurrentAttention::kName;
    in_.reverse = p_.reverse;
    in_.allow_tf32 = p_.tf32;
    in_.q = rows("q", p_.H, p_.K);
    in_.k = rows("k", p_.Hkv, p_.K);
    in_.v = rows("v", p_.Hkv, p_.V);
    add_gates();
    if (p_.h0) in_.initial_state = state("initial_state");
    if (p_.N > 0) {
      in_.cu_seqlens =
          tensors_.input("cu_seqlens", index_tensor(sequence_bounds(p_.N, p_.T, random_)));
    }
  }

  const ConstTensorView* rows(const char* name, std::int64_t heads, std::int64_t channels) {
    const Extents shape{p_.B, p_.T, heads, channels};
    return tensors_.input(name, random_.normal(p_.dtype, shape), rows_);
  }
  const ConstTensorView* state(const char* name) {
    const Extents shape{p_.sequences(), p_.H, p_.K, p_.V};
    return tensors_.input(name, made_states(random_, shape));
  }

  const AttentionInputs& inputs() const { return in_; }
  const Placement& placement() const { return rows_; }
  CaseTensors take_tensors() { return std::move(tensors_); }

 private:
  void add_gates() {
    GateTypes types(p_.gate_dtype, p_.dtype);
    const auto gate = [&](Gate bit, const char* name, const Extents& shape) {
      if ((p_.gates & bit) == 0) return static_cast<const ConstTensorView*>(nullptr);
      return tensors_.input(name, made_log_decays(random_, types.next(), shape));
    };
    in_.g = gate(kGateG, "g", {p_.B, p_.T, p_.H});
    in_.gk = gate(kGateGk, "gk", {p_.B, p_.T, p_.H, p_.K});
    in_.gv = gate(kGateGv, "gv", {p_.B, p_.T, p_.H, p_.V});
    if ((p_.gates & kGateGamma) == 0) return;
    in_.decay.g_gamma = tensors_.input("g_gamma", made_log_decays(random_, DType::kF32, {p_.H}));
  }

  Problem p_;
  CaseTensors tensors_;
  RandomValues random_;
  Placement rows_;
  AttentionInputs in_;
};

Problem completed(Problem problem) {
  RecurrentAttention::complete(problem);
  return problem;
}

}  // namespace

std::unique_ptr<Case> RecurrentAttention::make_case(const Problem& problem, const Device& device,
                                                    std::uint64_t seed) {
  MadeInputs made(completed(problem), device, seed);
  return forward_case(made.take_tensors(), made.inputs(), problem.ht, made.placement());
}

std::unique_ptr<Case> RecurrentAttentionBackward::make_case(const Problem& problem,
                                                            const Device& device,
                                                            std::uint64_t seed) {
  MadeInputs made(completed(problem), device, seed);
  AttentionOutputGradients gradients;
  if (problem.d_o) gradients.d_o = made.rows("do", problem.H, problem.V);
  if (problem.ht) gradients.dfinal_state = made.state("dfinal_state");
  return backward_case(made.take_tensors(), made.inputs(), gradients, made.placement());
}

}  // namespace attune::ops
