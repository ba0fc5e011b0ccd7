// Random legal calls of the backward pass, as forward_test.cpp has them of the forward one. The
// gradients of gates are held to what recurrent_attention.hpp says of them.
#include "backends/drawn/attention.hpp"
#include "support/forced_kernels.hpp"

namespace attune::test {
namespace {

/// The gradient of a gate, and what its terms come to (recurrent_attention.hpp).
struct GateGradient {
  Values values, read, left;

  double allowed(double e) const {
    const double d = e < 1e-3 ? 1e-4 : 2e-2;
    return std::max(d * rms(values), e * (rms(read) + rms(left)));
  }
};

/// Gradients by the formula.
class BackwardByFormula {
 public:
  explicit BackwardByFormula(const DrawnAttention& call)
      : c_(call), in_(call.as_doubles()), forward_(test::run(in_)), all(gradients(in_)) {
    add_read();
    add_left();
    add_gamma();
  }

 private:
  static Values zeros(std::int64_t count) { return Values(static_cast<std::size_t>(count)); }

  void add_read() {
    g.read = zeros(c_.B * c_.T * c_.H);
    gk.read = zeros(c_.B * c_.T * c_.H * c_.K);
    gv.read = zeros(c_.B * c_.T * c_.H * c_.V);
    for (std::int64_t n = 0; n < c_.sequences(); ++n) {
      for (std::int64_t row = c_.begin(n) * c_.H; row < c_.end(n) * c_.H; ++row) {
        for (std::int64_t i = row * c_.K; i < (row + 1) * c_.K; ++i) {
          g.read[row] += gk.read[i] = in_.q[i] * all.q[i];
        }
        for (std::int64_t j = row * c_.V; !in_.d_o.empty() && j < (row + 1) * c_.V; ++j) {
          gv.read[j] = forward_.o[j] * in_.d_o[j];
        }
      }
    }
    g.values = all.g;
    gk.values = all.gk;
    gv.values = all.gv;
  }

  void add_left() {
    const std::int64_t heads = c_.sequences() * c_.H;
    g.left = zeros(heads), gk.left = zeros(heads * c_.K), gv.left = zeros(heads * c_.V);
    if (in_.dfinal_state.empty()) return;
    for (std::int64_t at = 0; at < heads * c_.K * c_.V; ++at) {
      const double both = forward_.final_state[at] * in_.dfinal_state[at];
      g.left[at / c_.V / c_.K] += both;
      gk.left[at / c_.V] += both;
      gv.left[at / c_.V / c_.K * c_.V + at % c_.V] += both;
    }
  }

  /// A value of g_gamma stands for all tokens of a sequence, or of all of them.
  void add_gamma() {
    const bool is_repeated = c_.gamma_is_repeated || c_.lightning;
    const std::int64_t count = is_repeated ? c_.H : c_.sequences() * c_.H;
    gamma = {zeros(count), zeros(count), zeros(count)};
    for (std::int64_t n = 0; n < c_.sequences(); ++n) {
      for (std::int64_t h = 0; h < c_.H; ++h) {
        const std::int64_t to = is_repeated ? h : n * c_.H + h;
        gamma.values[to] += (c_.slopes ? -1 : 1) * all.gamma[n * c_.H + h];
        for (std::int64_t t = c_.begin(n); t < c_.end(n); ++t) {
          gamma.read[to] += g.read[t * c_.H + h];
          gamma.left[to] += g.left[n * c_.H + h];
        }
      }
    }
  }

  const DrawnAttention& c_;
  DoubleRecurrence in_;
  DoubleOutputs forward_;

 public:
  DoubleGradients all;
  GateGradient g, gk, gv, gamma;
};

class BackwardCall final : public RepeatedCall {
 public:
  explicit BackwardCall(std::uint64_t seed) : call_(seed, true), expected_(call_) {}

  DrawnCall& drawn() override { return call_; }
  std::vector<DrawnTensor*> outputs() override {
    return {call_.dq,  call_.dk,  call_.dv,     call_.dg,
            call_.dgk, call_.dgv, call_.dgamma, call_.dinitial_state};
  }
  void restore(std::byte poison) override {
    for (DrawnTensor* const output : outputs()) {
      if (output != nullptr) output->restore(poison);
    }
  }
  void run() override {
    if (call_.lightning) {
      ops::lightning_attention_backward_into(lightning_out(), q(), k(), v(), given(),
                                             call_.lightning_options());
    } else {
      ops::recurrent_attention_backward_into(out(), q(), k(), v(), given(), call_.options());
    }
  }
  void launch_plan() override {
    if (call_.lightning) {
      const auto to = lightning_out();
      const auto options = call_.lightning_options();
      launch(ops::plan_lightning_attention_backward(to, q(), k(), v(), given(), options),
             ops::lightning_attention_backward_args(to, q(), k(), v(), given(), options));
    } else {
      const auto options = call_.options();
      launch(ops::plan_recurrent_attention_backward(out(), q(), k(), v(), given(), options),
             ops::recurrent_attention_backward_args(out(), q(), k(), v(), given(), options));
    }
  }
  void check(const std::vector<Values>& outputs) override {
    const double e = tolerance(call_.dtype, call_.call.allow_tf32);
    const auto rows = [&](const char* name, const Values& got, const Values& expected,
                          const DrawnTensor* factor, std::int64_t heads) {
      const double of_scores = small_scores(call_.dtype, call_.dense(factor), heads);
      expect_close(name, got, expected, e * rms(expected) + of_scores, call_.dtype);
    };
    const auto gate = [&](const char* name, const DrawnTensor* given, const Values& got,
                          const GateGradient& expected) {
      if (given != nullptr) expect_close(name, got, expected.values, expected.allowed(e));
    };
    const std::int64_t heads = call_.H / call_.Hkv;
    rows("dq", outputs[0], expected_.all.q, call_.k, 1);
    rows("dk", outputs[1], expected_.all.k, call_.q, heads);
    rows("dv", outputs[2], expected_.all.v, call_.d_o, heads);
    gate("dg", call_.dg, outputs[3], expected_.g);
    gate("dgk", call_.dgk, outputs[4], expected_.gk);
    gate("dgv", call_.dgv, outputs[5], expected_.gv);
    gate("dgamma", call_.dgamma, outputs[6], expected_.gamma);
    if (call_.dinitial_state != nullptr) {
      const Values& state = expected_.all.initial_state;
      const double of_rows = small_scores(call_.dtype, call_.dense(call_.q));  // scale d_o
      expect_close("dinitial_state", outputs[7], state, e * rms(state) + of_rows);
    }
  }

 private:
  ops::RecurrentAttentionOutputGradients given() const {
    return {.d_o = call_.given(call_.d_o), .dfinal_state = call_.given(call_.dfinal_state)};
  }
  ops::LightningAttentionGradientOutputs lightning_out() const {
    ops::LightningAttentionGradientOutputs made{
        .dq = call_.dq->view(), .dk = call_.dk->view(), .dv = call_.dv->view()};
    (call_.slopes ? made.dslopes : made.dg_gamma) = call_.written(call_.dgamma);
    made.dinitial_state = call_.written(call_.dinitial_state);
    return made;
  }
  ops::RecurrentAttentionGradientOutputs out() const {
    ops::RecurrentAttentionGradientOutputs made{
        .dq = call_.dq->view(), .dk = call_.dk->view(), .dv = call_.dv->view()};
    (call_.g_is_gk ? made.dg : made.dgk) = call_.written(call_.dgk);
    if (!call_.g_is_gk) made.dg = call_.written(call_.dg);
    made.dgv = call_.written(call_.dgv);
    made.dg_gamma = call_.written(call_.dgamma);
    made.dinitial_state = call_.written(call_.dinitial_state);
    return made;
  }
  ConstTensorView q() const { return call_.q->view(); }
  ConstTensorView k() const { return call_.k->view(); }
  ConstTensorView v() const { return call_.v->view(); }

  DrawnAttention call_;
  BackwardByFormula expected_;
};

class DrawnBackward : public DrawnCalls {};
INSTANTIATE_TEST_SUITE_P(On, DrawnBackward, drawn_cases(), drawn_case_name);

TEST_P(DrawnBackward, IsTheFormulas) {
  BackwardCall call(seed_);
  force_each_kernel(call, *device_);
}

}  // namespace
}  // namespace attune::test
