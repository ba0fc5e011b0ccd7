// Random legal calls of the forward pass, on tensors of any layout, by each kernel that takes one:
// what is computed is the formula's in double, nothing is written beside outputs, and nothing read
// beside inputs, as it is NaN or may not be touched.
#include "backends/drawn/attention.hpp"
#include "support/forced_kernels.hpp"

namespace attune::test {
namespace {

class ForwardCall final : public RepeatedCall {
 public:
  explicit ForwardCall(std::uint64_t seed)
      : call_(seed, false), expected_(forward_by_formula(call_)) {}

  DrawnCall& drawn() override { return call_; }
  std::vector<DrawnTensor*> outputs() override {
    return {call_.o, call_.final_state, call_.states};
  }
  void restore(std::byte poison) override {
    call_.o->restore(poison);
    if (call_.states != nullptr) call_.states->restore();
    if (call_.final_state == nullptr) return;
    call_.in_place ? call_.final_state->restore() : call_.final_state->restore(poison);
  }
  void run() override {
    if (call_.lightning) {
      ops::lightning_attention_into(out(), q(), k(), v(), call_.lightning_options());
    } else {
      ops::recurrent_attention_into(out(), q(), k(), v(), call_.options());
    }
  }
  void launch_plan() override {
    if (call_.lightning) {
      const auto options = call_.lightning_options();
      launch(ops::plan_lightning_attention(out(), q(), k(), v(), options),
             ops::lightning_attention_args(out(), q(), k(), v(), options));
    } else {
      const auto options = call_.options();
      launch(ops::plan_recurrent_attention(out(), q(), k(), v(), options),
             ops::recurrent_attention_args(out(), q(), k(), v(), options));
    }
  }
  void check(const std::vector<Values>& outputs) override {
    const double e = tolerance(call_.dtype, call_.call.allow_tf32);
    const double of_states = std::max(e, tolerance(call_.state_dtype));
    const double of_scores = small_scores(call_.dtype, call_.dense(call_.v));
    expect_close("o", outputs[0], expected_.o, e * rms(expected_.o) + of_scores, call_.dtype);
    if (call_.final_state != nullptr) {
      expect_close("final_state", outputs[1], expected_.final_state,
                   of_states * rms(expected_.final_state), call_.state_dtype);
    }
    if (call_.states != nullptr) {
      expect_slots(*call_.states, call_.S, call_.H * call_.K * call_.V, expected_.slots, of_states,
                   call_.state_dtype, outputs[2]);
    }
  }

 private:
  ops::RecurrentAttentionOutputs out() const {
    return {.o = call_.o->view(), .final_state = call_.written(call_.final_state)};
  }
  ConstTensorView q() const { return call_.q->view(); }
  ConstTensorView k() const { return call_.k->view(); }
  ConstTensorView v() const { return call_.v->view(); }

  DrawnAttention call_;
  ForwardValues expected_;
};

class DrawnForward : public DrawnCalls {};
INSTANTIATE_TEST_SUITE_P(On, DrawnForward, drawn_cases(), drawn_case_name);

TEST_P(DrawnForward, IsTheFormulas) {
  ForwardCall call(seed_);
  force_each_kernel(call, *device_);
}

}  // namespace
}  // namespace attune::test
