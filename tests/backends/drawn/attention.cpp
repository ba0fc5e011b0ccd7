#include "backends/drawn/attention.hpp"

#include <limits>

namespace attune::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr LayoutRules kInputRows{.rows = true, .repeats = true};
constexpr LayoutRules kOutputRows{.rows = true};

constexpr double kForwardWork = 3e6, kBackwardWork = 6e5;

}  // namespace

DrawnAttention::DrawnAttention(std::uint64_t seed, bool is_backward)
    : DrawnCall(seed, is_backward ? kBackwardWork : kForwardWork) {
  draw_heads();
  draw_tokens();
  draw_values(is_backward);
  draw_gates();
  if (!is_backward && draw.one_in(3)) {
    draw_pool();
  } else {
    draw_states(is_backward);
  }
  if (state_dtype != DType::kF32 && draw.one_in(3)) {
    rounding = stochastic(static_cast<std::uint64_t>(draw.between(0, 1 << 30)));
  }
  if (is_backward) {
    draw_gradients();
  } else {
    o = add(dtype, rows(H, V), kOutputRows);
  }
  scale = drawn_scale();
  reverse = draw.one_in(3);
}

Extents DrawnAttention::rows(std::int64_t heads, std::int64_t channels) const {
  return without_batch_ ? Extents{T, heads, channels} : Extents{B, T, heads, channels};
}

Extents DrawnAttention::heads() const { return without_batch_ ? Extents{T, H} : Extents{B, T, H}; }

void DrawnAttention::draw_tokens() {
  constexpr std::int64_t kLengths[] = {0,  1,  2,  3,  7,   15,  16,  17,  31,  32,  33,  63,
                                       64, 65, 70, 96, 127, 128, 129, 130, 191, 200, 257, 400};
  const auto length = [&](std::int64_t times) {
    std::int64_t tokens = draw.one_of(kLengths);
    const double work = static_cast<double>(times * H * K * V);
    while (tokens > 1 && static_cast<double>(tokens) * work > most_work_) tokens = tokens * 2 / 3;
    return tokens;
  };
  if (!draw.one_in(3)) {
    B = draw.one_in(12) ? 0 : draw.between(1, 3);
    T = length(std::max<std::int64_t>(B, 1));
    return;
  }
  N = draw.between(1, 5);
  bounds = {0};
  for (std::int64_t n = 0; n < N; ++n) {
    bounds.push_back(bounds.back() + (draw.one_in(4) ? 0 : length(N)));
  }
  T = bounds.back() + (draw.one_in(3) ? draw.between(1, 80) : 0);
  without_batch_ = draw.one_in(3);
  cu_seqlens = indices(bounds, {N + 1});
}

/// Rows of tokens that no sequence has.
void DrawnAttention::spoil_padding(DrawnTensor* tensor, std::int64_t row) {
  if (packed()) spoil(tensor, [&](std::int64_t i) { return i < bounds.back() * row; });
}

void DrawnAttention::draw_values(bool is_backward) {
  const int most = dtype == DType::kF32 ? 20 : 8;
  const double of_q = magnitude(most), of_k = magnitude(most);
  q = normal(dtype, rows(H, K), kInputRows, of_q);
  k = H == Hkv && draw.one_in(12) ? q : normal(dtype, rows(Hkv, K), kInputRows, of_k);
  // What f16 has no room for is of no use here.
  const bool is_f16 = dtype == DType::kF16;
  if (is_f16 && is_backward) of_do_ = 1 / of_q / of_k;
  const double of_v = is_f16 && !is_backward ? 1 / (of_q * of_k) : magnitude(most);
  v = K == V && draw.one_in(12) ? k : normal(dtype, rows(Hkv, V), kInputRows, of_v);
  spoil_padding(q, H * K);
  if (k != q) spoil_padding(k, Hkv * K);
  if (v != k) spoil_padding(v, Hkv * V);
}

void DrawnAttention::draw_gates() {
  if (draw.one_in(6)) return draw_lightning();
  const GateKind strength = gate_kind();
  if (draw.one_in(3)) g = gate(heads(), strength, false);
  if (draw.one_in(3)) gk = gate(rows(H, K), strength, true);
  if (draw.one_in(4)) gv = gate(rows(H, V), strength, true);
  if (draw.one_in(3)) {
    gamma_is_repeated = draw.one_in(2);
    draw_gamma(gamma_is_repeated ? Extents{H} : Extents{sequences(), H});
  }
  spoil_padding(g, H);
  spoil_padding(gk, H * K);
  spoil_padding(gv, H * V);
  g_is_gk = g == nullptr && gk != nullptr && draw.one_in(3);
}

void DrawnAttention::draw_states(bool is_backward) {
  const bool starts = draw.one_in(2), ends = !is_backward && draw.one_in(2);
  if (starts || ends) state_dtype = is_backward ? DType::kF32 : draw.one_of(kFloatTypes);
  const double of_state = std::ldexp(1.0, static_cast<int>(draw.between(-3, 3)));
  in_place = starts && ends && draw.one_in(3);
  if (starts) {
    initial = normal(state_dtype, state_shape(), {.repeats = !in_place}, of_state);
  }
  if (ends) final_state = in_place ? initial : add(state_dtype, state_shape(), {});
}

void DrawnAttention::draw_pool() {
  constexpr double kMostElements = 1e6;
  state_dtype = draw.one_of(kFloatTypes);
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < sequences(); ++n) longest = std::max(longest, end(n) - begin(n));
  if (draw.one_in(2)) {
    every = 64 * draw.between(1, 2);
    M = longest / every + draw.between(0, 1);
  }
  S = sequences() * (2 + M) + draw.between(0, 2);
  while (S > 0 && static_cast<double>(S * H * K * V) > kMostElements) --S;
  draw_slots();
  const std::int64_t size = H * K * V;
  states = add(state_dtype, {S, H, K, V}, {});
  for (std::int64_t i = 0; i < states->count(); ++i) states->set(i, kNaN);
  for (const std::int64_t slot : from) {
    for (std::int64_t i = 0; slot >= 0 && i < size; ++i)
      states->set(slot * size + i, draw.normal());
  }
}

void DrawnAttention::draw_slots() {
  const Integers slots = drawn_slots(S);
  std::size_t next = 0;
  const auto slot = [&] {
    return draw.one_in(4) || next == slots.size() ? -draw.between(1, 9) : slots[next++];
  };
  const bool separate = draw.one_in(2);
  for (std::int64_t n = 0; n < sequences(); ++n) {
    to.push_back(slot());
    from.push_back(separate && draw.one_in(2) ? slot() : to.back());
  }
  for (std::int64_t i = 0; i < sequences() * M; ++i) kept.push_back(slot());
  final_slots = indices(to, {sequences()});
  if (separate) initial_slots = indices(from, {sequences()});
  if (every > 0) snapshot_slots = indices(kept, {sequences(), M});
}

void DrawnAttention::draw_gradients() {
  const double of_do = of_do_ != 0 ? of_do_ : magnitude(8);
  const bool ends = draw.one_in(2);
  if (!ends || !draw.one_in(5)) {
    d_o = normal(dtype, rows(H, V), kInputRows, of_do);
    spoil_padding(d_o, H * V);
  }
  if (ends) dfinal_state = normal(DType::kF32, state_shape(), {.repeats = true}, of_do);
  dq = add(dtype, rows(H, K), kOutputRows);
  dk = add(dtype, rows(Hkv, K), kOutputRows);
  dv = add(dtype, rows(Hkv, V), kOutputRows);
  if (g != nullptr) dg = add(DType::kF32, heads(), {});
  if (gk != nullptr) dgk = add(DType::kF32, rows(H, K), kOutputRows);
  if (gv != nullptr) dgv = add(DType::kF32, rows(H, V), kOutputRows);
  if (gamma != nullptr) dgamma = add(DType::kF32, gamma->shape(), {});
  if (initial != nullptr) dinitial_state = add(DType::kF32, state_shape(), {});
}

DoubleRecurrence DrawnAttention::as_doubles() const {
  DoubleRecurrence in{.B = B, .T = T, .H = H, .Hkv = Hkv, .K = K, .V = V, .cu_seqlens = bounds};
  in.reverse = reverse;
  in.scale = scale_value();
  in.q = dense(q), in.k = dense(k), in.v = dense(v);
  in.g = dense(g), in.gk = dense(gk), in.gv = dense(gv);
  const bool is_repeated = gamma_is_repeated || lightning;
  for (std::int64_t n = 0; n < sequences(); ++n) {
    for (std::int64_t h = 0; h < H; ++h) {
      in.gamma.push_back(gamma_value(h, is_repeated ? h : n * H + h));
    }
  }
  in.initial_state = dense(initial);
  in.d_o = dense(d_o), in.dfinal_state = dense(dfinal_state);
  return in;
}

template <class Options>
Options DrawnAttention::shared_options() const {
  Options made;
  made.initial_state = given(initial);
  made.cu_seqlens = given(cu_seqlens);
  made.states = written(states);
  made.initial_slots = given(initial_slots);
  made.final_slots = given(final_slots);
  made.snapshot_every = every;
  made.snapshot_slots = given(snapshot_slots);
  made.state_rounding = rounding;
  made.scale = scale;
  made.reverse = reverse;
  made.want_final_state = final_state != nullptr;
  made.call = call;
  return made;
}

ops::RecurrentAttentionOptions DrawnAttention::options() const {
  auto made = shared_options<ops::RecurrentAttentionOptions>();
  made.g = given(g_is_gk ? gk : g);
  if (!g_is_gk) made.gk = given(gk);
  made.gv = given(gv);
  made.g_gamma = given(gamma);
  return made;
}

ops::LightningAttentionOptions DrawnAttention::lightning_options() const {
  auto made = shared_options<ops::LightningAttentionOptions>();
  set_decay(made);
  return made;
}

// Each sequence by itself, in pieces that end where a snapshot is kept.
ForwardValues forward_by_formula(const DrawnAttention& c) {
  DoubleRecurrence whole = c.as_doubles();
  if (c.states != nullptr) {
    const Values pool = c.states->inputs();
    const std::int64_t size = c.H * c.K * c.V;
    whole.initial_state.clear();
    for (const std::int64_t slot : c.from) {
      for (std::int64_t i = 0; i < size; ++i) {
        whole.initial_state.push_back(slot < 0 ? 0 : pool[std::size_t(slot * size + i)]);
      }
    }
  }
  ForwardValues out;
  const DoubleOutputs all = run(whole, [&](std::int64_t n, std::int64_t steps, std::int64_t h,
                                           std::span<const double> state) {
    const auto keep = [&](std::int64_t slot) {
      if (slot < 0) return;
      Values& values = out.slots[slot];
      values.resize(static_cast<std::size_t>(c.H) * state.size());
      std::ranges::copy(state, values.begin() + h * static_cast<std::int64_t>(state.size()));
    };
    if (c.states == nullptr) return;
    if (steps == c.end(n) - c.begin(n)) keep(c.to[std::size_t(n)]);
    if (c.every > 0 && steps > 0 && steps % c.every == 0) {
      keep(c.kept[std::size_t(n * c.M + steps / c.every - 1)]);
    }
  });
  out.o = all.o;
  out.final_state = all.final_state;
  return out;
}

}  // namespace attune::test
