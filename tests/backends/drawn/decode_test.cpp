// Random legal decoding steps, as forward_test.cpp has calls of the forward pass: one token or
// several, in each of the three ways, with padding and what was not accepted NaN.
#include "support/double_recurrence.hpp"
#include "support/forced_kernels.hpp"

namespace attune::test {
namespace {

constexpr LayoutRules kInputRows{.rows = true, .repeats = true};

class DrawnDecode : public DrawnCall {
 public:
  /// Indices on a device may be out of range, which is padding.
  DrawnDecode(std::uint64_t seed, bool on_device) : DrawnCall(seed, 2e5), on_device_(on_device) {
    draw_heads();
    B = draw.one_in(12) ? 0 : draw.between(1, 6);
    has_tokens_ = draw.one_in(2);
    T = has_tokens_ ? draw.between(1, 16) : 1;
    is_kept_ = draw.one_in(4);
    if (!is_kept_ && draw.one_in(3)) R = draw.between(1, 16);
    draw_tokens();
    draw_slots();
    draw_states();
    o = add(dtype, rows(H, V), {.rows = true});
    scale = drawn_scale();
  }

  ops::RecurrentDecodeOptions options() const {
    auto made = shared_options<ops::RecurrentDecodeOptions>();
    made.g = given(g), made.gk = given(gk), made.gv = given(gv), made.g_gamma = given(gamma);
    if (R > 0) {
      made.committed->g = given(committed_g);
      made.committed->gk = given(committed_gk);
      made.committed->gv = given(committed_gv);
    }
    return made;
  }
  ops::LightningDecodeOptions lightning_options() const {
    auto made = shared_options<ops::LightningDecodeOptions>();
    set_decay(made);
    return made;
  }

  /// The slot that a row starts from; negative: padding.
  std::int64_t start(std::int64_t b) const {
    const auto within = [&](std::int64_t slot) { return slot < S ? slot : -1; };
    const std::int64_t count = counts_.empty() ? 0 : counts_[std::size_t(b)];
    if (is_kept_) {
      return count < 1 || count > T ? -1 : within(slots_[std::size_t(b * T + count - 1)]);
    }
    return count < 0 || count > R ? -1 : within(slots_[std::size_t(b)]);
  }
  struct Expected {
    Values o;
    Slots slots;
  };
  Expected by_formula() const;

  std::int64_t R = 0, S = 0;
  DrawnTensor *states = nullptr, *o = nullptr;

 private:
  template <class Options>
  Options shared_options() const {
    Options made;
    made.slot_indices = given(slot_indices);
    made.kept_slots = given(kept_slots);
    made.accepted = given(accepted);
    if (R > 0) {
      made.committed = ops::CommittedTokens{.k = committed_k->view(),
                                            .v = committed_v->view(),
                                            .accepted = committed_accepted->view()};
    }
    made.state_rounding = rounding;
    made.scale = scale;
    made.call = call;
    return made;
  }
  Extents rows(std::int64_t heads, std::int64_t channels) const {
    return has_tokens_ ? Extents{B, T, heads, channels} : Extents{B, heads, channels};
  }
  Extents heads() const { return has_tokens_ ? Extents{B, T, H} : Extents{B, H}; }

  void draw_tokens();
  void draw_slots();
  void draw_states();
  void spoil_what_was_not_accepted();
  DoubleRecurrence row_by_formula(std::int64_t b, const Slots& pool) const;

  bool on_device_, has_tokens_ = false, is_kept_ = false;
  Integers slots_, counts_;  // [B] or [B,T]; of accepted tokens
  DrawnTensor *slot_indices = nullptr, *kept_slots = nullptr, *accepted = nullptr,
              *committed_k = nullptr, *committed_v = nullptr, *committed_g = nullptr,
              *committed_gk = nullptr, *committed_gv = nullptr, *committed_accepted = nullptr;
};

void DrawnDecode::draw_tokens() {
  const int most = dtype == DType::kF32 ? 15 : 6;
  const double of_q = magnitude(most), of_k = magnitude(most);
  const double of_v = dtype == DType::kF16 ? 1 / (of_q * of_k) : magnitude(most);
  q = normal(dtype, rows(H, K), kInputRows, of_q);
  k = normal(dtype, rows(Hkv, K), kInputRows, of_k);
  v = normal(dtype, rows(Hkv, V), kInputRows, of_v);
  const GateKind strength = gate_kind();
  if (draw.one_in(6)) {
    draw_lightning();
  } else {
    if (draw.one_in(3)) g = gate(heads(), strength, false);
    if (draw.one_in(3)) gk = gate(rows(H, K), strength, true);
    if (draw.one_in(4)) gv = gate(rows(H, V), strength, true);
    if (draw.one_in(3)) draw_gamma({H});
  }
  if (R == 0) return;
  committed_k = normal(dtype, {B, R, Hkv, K}, kInputRows, of_k);
  committed_v = normal(dtype, {B, R, Hkv, V}, kInputRows, of_v);
  if (g != nullptr) committed_g = gate({B, R, H}, strength, false);
  if (gk != nullptr) committed_gk = gate({B, R, H, K}, strength, true);
  if (gv != nullptr) committed_gv = gate({B, R, H, V}, strength, true);
}

void DrawnDecode::draw_slots() {
  const bool is_named = is_kept_ || draw.one_in(2);
  S = (is_kept_ ? B * T : B) + draw.between(0, 3);
  const Integers all = drawn_slots(S);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < (is_kept_ ? B * T : B); ++i) {
    if (!is_named) {
      slots_.push_back(i);
    } else if (on_device_ && draw.one_in(8)) {
      slots_.push_back(S + draw.between(0, 5));
    } else {
      slots_.push_back(draw.one_in(4) ? -draw.between(1, 1 << 20) : all[next++]);
    }
  }
  if (is_kept_) {
    kept_slots = indices(slots_, has_tokens_ ? Extents{B, T} : Extents{B});
  } else if (is_named) {
    slot_indices = indices(slots_, {B});
  }
  if (!is_kept_ && R == 0) return;
  const std::int64_t least = is_kept_ ? 1 : 0, most = is_kept_ ? T : R;
  for (std::int64_t b = 0; b < B; ++b) {
    const bool is_beyond = on_device_ && draw.one_in(8);
    counts_.push_back(is_beyond        ? most + draw.between(1, 4)
                      : draw.one_in(6) ? -draw.between(1, 5)
                                       : draw.between(least, most));
  }
  (is_kept_ ? accepted : committed_accepted) = indices(counts_, {B});
  if (R > 0) spoil_what_was_not_accepted();
}

void DrawnDecode::spoil_what_was_not_accepted() {
  const auto spoil_rows = [&](DrawnTensor* tensor, std::int64_t row) {
    spoil(tensor, [&](std::int64_t i) {
      const std::int64_t b = i / (R * row);
      return start(b) >= 0 && i / row % R < counts_[std::size_t(b)];
    });
  };
  spoil_rows(committed_k, Hkv * K);
  spoil_rows(committed_v, Hkv * V);
  spoil_rows(committed_g, H);
  spoil_rows(committed_gk, H * K);
  spoil_rows(committed_gv, H * V);
}

void DrawnDecode::draw_states() {
  state_dtype = draw.one_of(kFloatTypes);
  if (state_dtype != DType::kF32 && draw.one_in(3)) {
    rounding = stochastic(static_cast<std::uint64_t>(draw.between(0, 1 << 30)));
  }
  const std::int64_t size = H * K * V;
  states = add(state_dtype, {S, H, K, V}, {});
  Integers read(static_cast<std::size_t>(S));
  for (std::int64_t b = 0; b < B; ++b) {
    if (start(b) >= 0) read[std::size_t(start(b))] = 1;
  }
  for (std::int64_t i = 0; i < S * size; ++i) {
    states->set(i, read[std::size_t(i / size)] != 0 ? draw.normal() : std::nan(""));
  }
}

/// The committed tokens that a row takes, and then its own, as one sequence.
DoubleRecurrence DrawnDecode::row_by_formula(std::int64_t b, const Slots& pool) const {
  const std::int64_t taken = R > 0 ? counts_[std::size_t(b)] : 0;
  DoubleRecurrence in{.B = 1, .T = taken + T, .H = H, .Hkv = Hkv, .K = K, .V = V};
  in.scale = scale_value();
  const auto joined = [&](const DrawnTensor* before, const DrawnTensor* now, std::int64_t row) {
    Values values;
    for (std::int64_t i = 0; now != nullptr && i < taken * row; ++i) {
      values.push_back(before == nullptr ? 0 : before->input(b * R * row + i));
    }
    for (std::int64_t i = 0; now != nullptr && i < T * row; ++i) {
      values.push_back(now->input(b * T * row + i));
    }
    return values;
  };
  in.q = joined(nullptr, q, H * K);
  in.k = joined(committed_k, k, Hkv * K);
  in.v = joined(committed_v, v, Hkv * V);
  in.g = joined(committed_g, g, H);
  in.gk = joined(committed_gk, gk, H * K);
  in.gv = joined(committed_gv, gv, H * V);
  for (std::int64_t h = 0; h < H; ++h) in.gamma.push_back(gamma_value(h, h));
  in.initial_state = pool.at(start(b));
  return in;
}

DrawnDecode::Expected DrawnDecode::by_formula() const {
  Expected out{.o = Values(static_cast<std::size_t>(B * T * H * V)), .slots = {}};
  const std::int64_t size = H * K * V;
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t from = start(b);
    if (from < 0) continue;
    Slots pool;
    for (std::int64_t i = 0; i < size; ++i) pool[from].push_back(states->input(from * size + i));
    const std::int64_t taken = R > 0 ? counts_[std::size_t(b)] : 0;
    const auto look = [&](std::int64_t, std::int64_t tokens, std::int64_t h,
                          std::span<const double> state) {
      std::int64_t to = -1;
      if (is_kept_ && tokens > 0) to = slots_[std::size_t(b * T + tokens - 1)];
      if (!is_kept_ && tokens > 0 && tokens == (R > 0 ? taken : T)) to = from;
      if (to < 0 || to >= S) return;
      Values& values = out.slots[to];
      values.resize(static_cast<std::size_t>(size));
      std::ranges::copy(state, values.begin() + h * K * V);
    };
    const DoubleOutputs row = run(row_by_formula(b, pool), look);
    std::copy(row.o.begin() + taken * H * V, row.o.end(), out.o.begin() + b * T * H * V);
  }
  return out;
}

class DecodeStep final : public RepeatedCall {
 public:
  DecodeStep(std::uint64_t seed, bool on_device)
      : call_(seed, on_device), expected_(call_.by_formula()) {}

  DrawnCall& drawn() override { return call_; }
  std::vector<DrawnTensor*> outputs() override { return {call_.o, call_.states}; }
  void restore(std::byte poison) override {
    call_.o->restore(poison);
    call_.states->restore();
  }
  void run() override {
    if (call_.lightning) {
      ops::lightning_decode_into(o(), q(), k(), v(), states(), call_.lightning_options());
    } else {
      ops::recurrent_decode_into(o(), q(), k(), v(), states(), call_.options());
    }
  }
  void launch_plan() override {
    if (call_.lightning) {
      const auto options = call_.lightning_options();
      launch(ops::plan_lightning_decode(o(), q(), k(), v(), states(), options),
             ops::lightning_decode_args(o(), q(), k(), v(), states(), options));
    } else {
      const auto options = call_.options();
      launch(ops::plan_recurrent_decode(o(), q(), k(), v(), states(), options),
             ops::recurrent_decode_args(o(), q(), k(), v(), states(), options));
    }
  }
  void check(const std::vector<Values>& outputs) override {
    const double e = tolerance(call_.dtype, call_.call.allow_tf32);
    expect_close("o", outputs[0], expected_.o, e * rms(expected_.o), call_.dtype);
    expect_slots(*call_.states, call_.S, call_.H * call_.K * call_.V, expected_.slots,
                 std::max(e, tolerance(call_.state_dtype)), call_.state_dtype, outputs[1]);
  }

 private:
  TensorView o() const { return call_.o->view(); }
  TensorView states() const { return call_.states->view(); }
  ConstTensorView q() const { return call_.q->view(); }
  ConstTensorView k() const { return call_.k->view(); }
  ConstTensorView v() const { return call_.v->view(); }

  DrawnDecode call_;
  DrawnDecode::Expected expected_;
};

class DrawnSteps : public DrawnCalls {};
INSTANTIATE_TEST_SUITE_P(On, DrawnSteps, drawn_cases(), drawn_case_name);

TEST_P(DrawnSteps, AreTheFormulas) {
  DecodeStep call(seed_, device_ != &cpu_device());
  force_each_kernel(call, *device_);
}

}  // namespace
}  // namespace attune::test
