// Random summaries of tokens and folds of them, as forward_test.cpp has calls of the forward pass.
// They have no function of their own: what asks for them knows their problem, of any strides.
#include <attune/core/executor.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "support/forced_kernels.hpp"

namespace attune::test {
namespace {

using ops::StateFold;
using ops::StateSummary;

/// Sums of log decays as far as they make a difference.
Values clipped(Values sums) {
  for (double& sum : sums) sum = std::max(sum, -200.0);
  return sums;
}

/// A problem with its arguments, run and planned by an executor.
template <class Op>
void run_on(DrawnCall& drawn, const typename Op::Problem& problem, const typename Op::Args& args,
            const Device& device) {
  const CallMemory memory{.workspace = drawn.call.workspace};
  Executor(forcing_context()).run<Op>(problem, args, {.device = &device, .memory = memory});
}
template <class Op>
void launch_on(const typename Op::Problem& problem, const typename Op::Args& args,
               const Device& device) {
  launch(Executor(forcing_context()).plan<Op>(problem, {.device = &device}), args);
}

class SummaryCall final : public RepeatedCall {
 public:
  SummaryCall(std::uint64_t seed, const Device& device)
      : drawn_(seed, 1e6), device_(device), draw_(drawn_.draw) {
    drawn_.draw_heads();
    draw_tokens();
    draw_inputs();
    draw_problem();
    const Extents heads{sequences_, drawn_.H, drawn_.K};
    final_state_ = drawn_.add(DType::kF32, {sequences_, drawn_.H, drawn_.K, drawn_.V}, {});
    gk_sum_ = drawn_.add(DType::kF32, heads, {});
    if (drawn_.gv != nullptr) {
      gv_sum_ = drawn_.add(DType::kF32, {sequences_, drawn_.H, drawn_.V}, {});
    }
    add_up();
  }

  DrawnCall& drawn() override { return drawn_; }
  std::vector<DrawnTensor*> outputs() override { return {final_state_, gk_sum_, gv_sum_}; }
  void restore(std::byte poison) override {
    for (DrawnTensor* const output : outputs()) {
      if (output != nullptr) output->restore(poison);
    }
  }
  void run() override { run_on<StateSummary>(drawn_, problem_, args(), device_); }
  void launch_plan() override { launch_on<StateSummary>(problem_, args(), device_); }
  void check(const std::vector<Values>& outputs) override {
    const double e = tolerance(drawn_.dtype, drawn_.call.allow_tf32);
    expect_close("final_state", outputs[0], state_, e * rms(state_));
    const Values rows = clipped(of_rows_), columns = clipped(of_columns_);
    expect_close("gk_sum", clipped(outputs[1]), rows, 2e-5 * rms(rows));
    if (gv_sum_ != nullptr) {
      expect_close("gv_sum", clipped(outputs[2]), columns, 2e-5 * rms(columns));
    }
  }

 private:
  void draw_tokens() {
    constexpr std::int64_t kLengths[] = {0, 1, 2, 5, 16, 31, 64, 65, 100, 129, 200};
    const std::int64_t work = drawn_.H * drawn_.K * drawn_.V;
    const auto length = [&] {
      return std::min<std::int64_t>(draw_.one_of(kLengths),
                                    std::max<std::int64_t>(300000 / work, 1));
    };
    bounds_ = {0};
    const bool is_packed = draw_.one_in(2);
    sequences_ = is_packed ? draw_.between(1, 4) : draw_.between(0, 3);
    const std::int64_t equal = length();
    for (std::int64_t n = 0; n < sequences_; ++n) {
      bounds_.push_back(bounds_.back() + (is_packed ? length() : equal));
    }
    drawn_.B = is_packed ? 1 : sequences_;
    drawn_.T = is_packed ? bounds_.back() + draw_.between(0, 20) : equal;
    if (is_packed) cu_seqlens_ = drawn_.indices(bounds_, {sequences_ + 1});
  }

  void draw_inputs() {
    const auto [B, T, H, Hkv, K, V] =
        std::tie(drawn_.B, drawn_.T, drawn_.H, drawn_.Hkv, drawn_.K, drawn_.V);
    constexpr LayoutRules kRows{.rows = true, .repeats = true};
    const GateKind strength = drawn_.gate_kind();
    drawn_.k = drawn_.normal(drawn_.dtype, {B, T, Hkv, K}, kRows, 1);
    drawn_.v = drawn_.normal(drawn_.dtype, {B, T, Hkv, V}, kRows, 1);
    if (draw_.one_in(2)) drawn_.g = drawn_.gate({B, T, H}, strength, false);
    if (draw_.one_in(2)) drawn_.gk = drawn_.gate({B, T, H, K}, strength, true);
    if (draw_.one_in(3)) drawn_.gv = drawn_.gate({B, T, H, V}, strength, true);
    if (draw_.one_in(3)) drawn_.draw_gamma({sequences_, H});
    if (draw_.one_in(2)) {
      initial_ = drawn_.normal(DType::kF32, {sequences_, H, K, V}, {.repeats = true}, 1);
    }
    const auto spoil = [&](DrawnTensor* tensor, std::int64_t row) {
      drawn_.spoil(tensor, [&](std::int64_t i) { return i < bounds_.back() * row; });
    };
    spoil(drawn_.k, Hkv * K);
    spoil(drawn_.v, Hkv * V);
    spoil(drawn_.g, H);
    spoil(drawn_.gk, H * K);
    spoil(drawn_.gv, H * V);
    scale_ = draw_.one_in(2) ? 1 : draw_.normal();
  }

  void draw_problem() {
    const auto is_io = [&](const DrawnTensor* gate) {
      return gate != nullptr && gate->dtype() != DType::kF32;
    };
    int gates = 0, of_io = 0, of_f32 = 0;
    for (const auto& [gate, bit] :
         {std::pair{drawn_.g, ops::kGateG}, std::pair{drawn_.gk, ops::kGateGk},
          std::pair{drawn_.gv, ops::kGateGv}}) {
      if (gate == nullptr) continue;
      gates |= bit;
      ++(is_io(gate) ? of_io : of_f32);
    }
    if (drawn_.gamma != nullptr) gates |= ops::kGateGamma;
    problem_ = {.B = drawn_.B,
                .T = drawn_.T,
                .H = drawn_.H,
                .Hkv = drawn_.Hkv,
                .K = drawn_.K,
                .V = drawn_.V,
                .N = cu_seqlens_ != nullptr ? sequences_ : 0,
                .dtype = drawn_.dtype,
                .gates = gates};
    problem_.gate_dtype = of_io == 0    ? ops::GateDType::kF32
                          : of_f32 == 0 ? ops::GateDType::kIo
                                        : ops::GateDType::kMixed;
    problem_.h0 = initial_ != nullptr;
    problem_.reverse = draw_.one_in(3);
    problem_.inclusive = gates != 0 && draw_.one_in(2);
    problem_.layout = ops::Layout::kStrided;
    problem_.aligned = false;
    problem_.tf32 = drawn_.call.allow_tf32 && drawn_.dtype == DType::kF32;
  }

  ops::StateSummaryArgs args() const {
    ops::StateSummaryArgs made;
    made.k = drawn_.k->view();
    made.v = drawn_.v->view();
    made.g = drawn_.given(drawn_.g);
    made.gk = drawn_.given(drawn_.gk);
    made.gv = drawn_.given(drawn_.gv);
    if (drawn_.gamma != nullptr) {
      made.gamma = {.source = ops::ConstantDecay::Source::kValues, .values = drawn_.gamma->view()};
    }
    made.initial_state = drawn_.given(initial_);
    made.cu_seqlens = drawn_.given(cu_seqlens_);
    made.scale = scale_;
    made.final_state = final_state_->view();
    made.gk_sum = gk_sum_->view();
    made.gv_sum = drawn_.written(gv_sum_);
    return made;
  }

  /// One token of a head by the formula.
  void take(std::int64_t n, std::int64_t h, std::int64_t token) {
    const std::int64_t K = drawn_.K, V = drawn_.V, H = drawn_.H, nh = n * H + h;
    const std::int64_t row = token * H + h, kv_row = token * drawn_.Hkv + h / (H / drawn_.Hkv);
    const auto at = [](const DrawnTensor* tensor, std::int64_t i) {
      return tensor == nullptr ? 0 : tensor->input(i);
    };
    for (std::int64_t j = 0; j < V; ++j) of_columns_[nh * V + j] += at(drawn_.gv, row * V + j);
    for (std::int64_t i = 0; i < K; ++i) {
      const double of_row = at(drawn_.g, row) + at(drawn_.gamma, nh) + at(drawn_.gk, row * K + i);
      of_rows_[nh * K + i] += of_row;
      for (std::int64_t j = 0; j < V; ++j) {
        const double decay = std::exp(of_row + at(drawn_.gv, row * V + j));
        const double added = scale_ * at(drawn_.k, kv_row * K + i) * at(drawn_.v, kv_row * V + j);
        double& s = state_[(nh * K + i) * V + j];
        s = decay * s + (problem_.inclusive ? decay : 1) * added;
      }
    }
  }

  void add_up() {
    const std::int64_t heads = sequences_ * drawn_.H;
    state_ = initial_ != nullptr ? initial_->inputs()
                                 : Values(static_cast<std::size_t>(heads * drawn_.K * drawn_.V));
    of_rows_.resize(static_cast<std::size_t>(heads * drawn_.K));
    of_columns_.resize(static_cast<std::size_t>(heads * drawn_.V));
    for (std::int64_t n = 0; n < sequences_; ++n) {
      const std::int64_t begin = bounds_[n], end = bounds_[n + 1];
      for (std::int64_t step = 0; step < end - begin; ++step) {
        const std::int64_t token = problem_.reverse ? end - 1 - step : begin + step;
        for (std::int64_t h = 0; h < drawn_.H; ++h) take(n, h, token);
      }
    }
    if (gv_sum_ == nullptr) of_columns_.clear();
  }

  DrawnCall drawn_;
  const Device& device_;
  Draw& draw_;
  std::int64_t sequences_ = 0;
  Integers bounds_;
  double scale_ = 1;
  ops::StateSummaryProblem problem_;
  DrawnTensor *initial_ = nullptr, *cu_seqlens_ = nullptr, *final_state_ = nullptr,
              *gk_sum_ = nullptr, *gv_sum_ = nullptr;
  Values state_, of_rows_, of_columns_;
};

class FoldCall final : public RepeatedCall {
 public:
  FoldCall(std::uint64_t seed, const Device& device)
      : drawn_(seed, 1e5), device_(device), draw_(drawn_.draw) {
    drawn_.draw_heads();
    const std::int64_t H = drawn_.H, K = drawn_.K, V = drawn_.V;
    draw_order();
    const GateKind strength = drawn_.gate_kind();
    summaries_ = drawn_.normal(DType::kF32, {M_, H, K, V}, {.repeats = true}, 1);
    if (draw_.one_in(2)) gk_sum_ = sums({M_, H, K}, strength);
    if (draw_.one_in(2)) gv_sum_ = sums({M_, H, V}, strength);
    if (draw_.one_in(2)) draw_starts();
    folded_ = drawn_.add(DType::kF32, {F_, H, K, V}, {});
    fold();
  }

  DrawnCall& drawn() override { return drawn_; }
  std::vector<DrawnTensor*> outputs() override { return {folded_}; }
  void restore(std::byte poison) override { folded_->restore(poison); }
  void run() override { run_on<StateFold>(drawn_, problem(), args(), device_); }
  void launch_plan() override { launch_on<StateFold>(problem(), args(), device_); }
  void check(const std::vector<Values>& outputs) override {
    expect_close("folded", outputs[0], expected_, 2e-5 * rms(expected_));
  }

 private:
  void draw_order() {
    F_ = draw_.between(0, 4);
    M_ = draw_.between(0, 6);
    offsets_ = {0};
    for (std::int64_t f = 0; f < F_; ++f) {
      const std::int64_t count = M_ == 0 ? 0 : draw_.between(0, 5);
      offsets_.push_back(offsets_.back() + count);
      for (std::int64_t i = 0; i < count; ++i) order_.push_back(draw_.between(0, M_ - 1));
    }
    fold_offsets_ = drawn_.indices(offsets_, {F_ + 1});
    fold_order_ = drawn_.indices(order_, {offsets_.back()});
  }

  DrawnTensor* sums(const Extents& shape, GateKind strength) {
    DrawnTensor* const made = drawn_.add(DType::kF32, shape, {.repeats = true});
    for (std::int64_t i = 0; i < made->count(); ++i) made->set(i, drawn_gate(draw_, strength));
    return made;
  }

  void draw_starts() {
    const std::int64_t H = drawn_.H, K = drawn_.K, V = drawn_.V;
    for (std::int64_t f = 0; f < F_; ++f) {
      starts_.push_back(draw_.one_in(3) ? -draw_.between(1, 3) : draw_.between(0, F_ - 1));
    }
    initial_ = drawn_.normal(DType::kF32, {F_, H, K, V}, {.repeats = true}, 1);
    initial_slots_ = drawn_.indices(starts_, {F_});
    drawn_.spoil(initial_, [&](std::int64_t i) {
      return std::ranges::find(starts_, i / (H * K * V)) != starts_.end();
    });
  }

  ops::StateFoldProblem problem() const {
    return {.F = F_,
            .M = M_,
            .L = offsets_.back(),
            .H = drawn_.H,
            .K = drawn_.K,
            .V = drawn_.V,
            .gk_sum = gk_sum_ != nullptr,
            .gv_sum = gv_sum_ != nullptr,
            .h0 = initial_ != nullptr};
  }
  ops::StateFoldArgs args() const {
    ops::StateFoldArgs made;
    made.final_state = summaries_->view();
    made.gk_sum = drawn_.given(gk_sum_);
    made.gv_sum = drawn_.given(gv_sum_);
    made.initial_state = drawn_.given(initial_);
    made.initial_slots = drawn_.given(initial_slots_);
    made.fold_offsets = fold_offsets_->view();
    made.fold_order = fold_order_->view();
    made.folded = folded_->view();
    return made;
  }

  void fold() {
    const std::int64_t K = drawn_.K, V = drawn_.V, size = drawn_.H * K * V;
    const auto log_decay = [&](std::int64_t m, std::int64_t at) {
      const std::int64_t h = at / (K * V), i = at / V % K, j = at % V;
      const double of_row = gk_sum_ == nullptr ? 0 : gk_sum_->input((m * drawn_.H + h) * K + i);
      return of_row + (gv_sum_ == nullptr ? 0 : gv_sum_->input((m * drawn_.H + h) * V + j));
    };
    for (std::int64_t f = 0; f < F_; ++f) {
      const std::int64_t start = initial_ == nullptr ? -1 : starts_[f];
      for (std::int64_t at = 0; at < size; ++at) {
        double s = start < 0 ? 0 : initial_->input(start * size + at);
        for (std::int64_t i = offsets_[f]; i < offsets_[f + 1]; ++i) {
          s = std::exp(log_decay(order_[i], at)) * s + summaries_->input(order_[i] * size + at);
        }
        expected_.push_back(s);
      }
    }
  }

  DrawnCall drawn_;
  const Device& device_;
  Draw& draw_;
  std::int64_t F_ = 0, M_ = 0;
  Integers offsets_, order_, starts_;
  DrawnTensor *summaries_ = nullptr, *gk_sum_ = nullptr, *gv_sum_ = nullptr, *initial_ = nullptr,
              *initial_slots_ = nullptr, *fold_offsets_ = nullptr, *fold_order_ = nullptr,
              *folded_ = nullptr;
  Values expected_;
};

class DrawnSummaries : public DrawnCalls {};
INSTANTIATE_TEST_SUITE_P(On, DrawnSummaries, drawn_cases(), drawn_case_name);

TEST_P(DrawnSummaries, AreTheFormulas) {
  SummaryCall call(seed_, *device_);
  force_each_kernel(call, *device_);
}

TEST_P(DrawnSummaries, FoldAsTheFormulaSays) {
  FoldCall call(seed_, *device_);
  force_each_kernel(call, *device_);
}

}  // namespace
}  // namespace attune::test
