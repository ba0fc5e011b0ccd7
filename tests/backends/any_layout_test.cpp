// Calls on views of any layout: dimensions in any order, gaps between rows, rows backwards or one
// row for all, states of each type stored either way. What comes out is what dense copies give, and
// nothing is written beside it.
#include <algorithm>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <attune/attune.hpp>

#include "support/campaign.hpp"
#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionOptions;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// A view of any layout, and the memory around it.
struct Laid {
  Tensor memory;
  TensorView view;
};

std::vector<std::byte> bytes_of(const Tensor& memory) {
  const auto* const first = static_cast<const std::byte*>(memory.view().data);
  return {first, first + memory.bytes()};
}

/// The bytes of the memory, with the view's elements as they were.
std::vector<std::byte> bytes_beside(const Laid& laid, const std::vector<std::byte>& before) {
  std::vector<std::byte> bytes = bytes_of(laid.memory);
  const TensorView& view = laid.view;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t first = static_cast<const std::byte*>(view.data) -
                             static_cast<const std::byte*>(laid.memory.view().data);
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int dim = view.rank() - 1; dim >= 0; --dim) {
      offset += rest % view.size(dim) * view.stride(dim);
      rest /= view.size(dim);
    }
    std::copy_n(before.begin() + first + offset * size, size,
                bytes.begin() + first + offset * size);
  }
  return bytes;
}

class Layouts {
 public:
  explicit Layouts(std::uint64_t seed) : random_(seed), values_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }
  template <class T, std::size_t N>
  T one_of(const T (&all)[N]) {
    return all[static_cast<std::size_t>(between(0, std::int64_t{N} - 1))];
  }

  /// Of tokens: the last dimension is contiguous, and rows of an input may be one row.
  Laid tokens(DType dtype, const Extents& shape, bool is_input = true) {
    return laid(dtype, shape, true, is_input, false);
  }
  Laid gate(const Extents& shape) { return laid(DType::kF32, shape, true, true, true); }
  /// Of states: every dimension may have any stride.
  Laid states(DType dtype, const Extents& shape) { return laid(dtype, shape, false, false, false); }

 private:
  Laid laid(DType dtype, const Extents& shape, bool last_contiguous, bool may_repeat, bool decays) {
    std::vector<int> order(static_cast<std::size_t>(shape.rank()));  // the outermost first
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end() - (last_contiguous ? 1 : 0), random_);
    Extents strides = shape;
    std::int64_t step = 1, before = 0, behind = 0;
    for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
      const bool is_row = last_contiguous && *dim == shape.rank() - 1;
      std::int64_t stride = is_row || !one_in(3) ? step : step + between(1, 7);
      if (!is_row && one_in(6)) stride = -stride;
      if (!is_row && may_repeat && one_in(10)) stride = 0;
      strides[*dim] = stride;
      (stride < 0 ? before : behind) += std::abs(stride) * (shape[*dim] - 1);
      if (stride != 0) step = std::abs(stride) * shape[*dim];
    }
    const Extents all{before + behind + 1 + between(0, 3)};
    Laid made{decays ? values_.log_decays(all) : values_(all, dtype), {}};
    auto* const first = static_cast<std::byte*>(made.memory.view().data);
    made.view = {first + before * static_cast<std::int64_t>(size_of(dtype)), dtype, shape, strides};
    return made;
  }

  std::mt19937_64 random_;
  RandomTensors values_;
};

/// The inputs of one call.
struct DrawnCall {
  explicit DrawnCall(std::uint64_t seed, bool backward) : layouts(seed) {
    const std::int64_t lengths[] = {1, 3, 17, 64, 70, 130}, channels[] = {1, 5, 16, 20, 36, 64};
    const std::int64_t B = layouts.between(1, 2), T = layouts.one_of(lengths);
    const std::int64_t Hkv = layouts.between(1, 2), H = Hkv * layouts.between(1, 2);
    const std::int64_t K = layouts.one_of(channels), V = layouts.one_of(channels);
    dtype = layouts.one_of(kTypes);
    state_dtype = backward ? DType::kF32 : layouts.one_of(kTypes);
    q = layouts.tokens(dtype, {B, T, H, K});
    k = layouts.tokens(dtype, {B, T, Hkv, K});
    v = layouts.tokens(dtype, {B, T, Hkv, V});
    if (layouts.one_in(2)) gk = layouts.gate({B, T, H, K});
    state = layouts.states(state_dtype, {B, H, K, V});
    out = {B, T, H, V};
  }

  Layouts layouts;
  DType dtype = DType::kF32, state_dtype = DType::kF32;
  Laid q, k, v, state;
  std::optional<Laid> gk;
  Extents out;  // o's shape
};

class AnyLayout : public EachPlatform {
 protected:
  /// On dense copies where `dense`, else on the views.
  RecurrentAttentionOptions options_of(const DrawnCall& drawn, bool dense) {
    RecurrentAttentionOptions made = options();
    copies_.clear();
    if (drawn.gk) made.gk = dense ? copied(drawn.gk->view) : ConstTensorView(drawn.gk->view);
    made.initial_state = dense ? copied(drawn.state.view) : ConstTensorView(drawn.state.view);
    return made;
  }
  ConstTensorView copied(const ConstTensorView& view) {
    copies_.push_back(copy_of(view));
    return copies_.back().view();
  }
  void expect_written(const Laid& actual, const std::vector<std::byte>& before,
                      const ConstTensorView& expected, double tolerance) {
    expect_near(actual.view, expected, tolerance);
    EXPECT_EQ(bytes_beside(actual, before), before) << "something is written beside the output";
  }

 private:
  std::list<Tensor> copies_;
};
INSTANTIATE_TEST_SUITE_P(Platforms, AnyLayout, cpu_platforms(), platform_name);

std::uint64_t calls(int brief, int lengthy) {
  return static_cast<std::uint64_t>(campaign_length(brief, lengthy));
}

double tolerance_of(DType dtype) { return dtype == DType::kF32 ? kTolerance : 2 * kTolerance16; }

TEST_P(AnyLayout, GivesWhatDenseTensorsGive) {
  for (std::uint64_t seed = 0; seed < calls(60, 3000); ++seed) {
    SCOPED_TRACE(seed);
    DrawnCall drawn(seed, false);
    const auto expected = ops::recurrent_attention(copy_of(drawn.q.view), copy_of(drawn.k.view),
                                                   copy_of(drawn.v.view), options_of(drawn, true));
    const Laid o = drawn.layouts.tokens(drawn.dtype, drawn.out, false);
    const Laid final_state = drawn.layouts.states(drawn.state_dtype, drawn.state.view.shape);
    const auto o_before = bytes_of(o.memory), state_before = bytes_of(final_state.memory);
    ops::recurrent_attention_into({.o = o.view, .final_state = final_state.view}, drawn.q.view,
                                  drawn.k.view, drawn.v.view, options_of(drawn, false));
    expect_written(o, o_before, expected.o, tolerance_of(drawn.dtype));
    expect_written(final_state, state_before, *expected.final_state,
                   std::max(tolerance_of(drawn.dtype), tolerance_of(drawn.state_dtype)));
  }
}

TEST_P(AnyLayout, HasTheGradientsOfDenseTensors) {
  for (std::uint64_t seed = 0; seed < calls(40, 2000); ++seed) {
    SCOPED_TRACE(seed);
    DrawnCall drawn(seed, true);
    const Laid d_o = drawn.layouts.tokens(drawn.dtype, drawn.out);
    const Tensor dense = copy_of(d_o.view);
    const auto expected = ops::recurrent_attention_backward(
        copy_of(drawn.q.view), copy_of(drawn.k.view), copy_of(drawn.v.view), {.d_o = dense.view()},
        options_of(drawn, true));
    const auto like = [&](const Laid& input) {
      return drawn.layouts.tokens(drawn.dtype, input.view.shape, false);
    };
    const Laid dq = like(drawn.q), dk = like(drawn.k), dv = like(drawn.v);
    const Laid dstate = drawn.layouts.states(DType::kF32, drawn.state.view.shape);
    ops::RecurrentAttentionGradientOutputs out{
        .dq = dq.view, .dk = dk.view, .dv = dv.view, .dinitial_state = dstate.view};
    Tensor dgk;
    if (drawn.gk) {
      dgk = Tensor(DType::kF32, drawn.gk->view.shape);
      out.dgk = dgk.view();
    }
    const auto q_before = bytes_of(dq.memory), k_before = bytes_of(dk.memory);
    const auto v_before = bytes_of(dv.memory), state_before = bytes_of(dstate.memory);
    ops::recurrent_attention_backward_into(out, drawn.q.view, drawn.k.view, drawn.v.view,
                                           {.d_o = ConstTensorView(d_o.view)},
                                           options_of(drawn, false));
    const double tolerance = tolerance_of(drawn.dtype);
    expect_written(dq, q_before, expected.dq, tolerance);
    expect_written(dk, k_before, expected.dk, tolerance);
    expect_written(dv, v_before, expected.dv, tolerance);
    if (drawn.gk) expect_near(dgk, *expected.dgk, 10 * tolerance);
    expect_written(dstate, state_before, *expected.dinitial_state, tolerance);
  }
}

}  // namespace
}  // namespace attune::test
