// The forward pass that checks are made with, against the sum that the recurrence comes to, and
// what else of the arguments is summed.
#include "attention/forward_in_double.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/operand_case.hpp>

#include "attention/gate_summands.hpp"
#include "ops/case_support.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentAttentionProblem;
using Args = RecurrentAttentionBackwardArgs;

double element(const ConstTensorView& view, const std::vector<std::int64_t>& index) {
  std::int64_t flat = 0;
  for (int dim = 0; dim < view.rank(); ++dim) {
    flat = flat * view.size(dim) + index[static_cast<std::size_t>(dim)];
  }
  return element_as_double(view, flat);
}

class Recurrences : public testing::TestWithParam<const char*> {
 protected:
  Recurrences() {
    const AnyProblem parsed =
        test::all_ops().op(RecurrentAttentionBackward::kName).parse(parse_params(GetParam(), ' '));
    problem = ProblemRef(parsed).as<RecurrentAttentionBackward>();
    made = test::make_case(RecurrentAttentionBackward::kName, GetParam());
    args = &test::args_of<RecurrentAttentionBackward>(*made);
  }

  double gate(const std::optional<ConstTensorView>& view,
              const std::vector<std::int64_t>& index) const {
    return view ? element(*view, index) : 0.0;
  }
  double decay(std::int64_t n, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i,
               std::int64_t j) const {
    return gamma_of(args->gamma, n, h, problem.H) + gate(args->g, {b, t, h}) +
           gate(args->gk, {b, t, h, i}) + gate(args->gv, {b, t, h, j});
  }
  /// Where sequence n begins, or the last of all ends.
  std::int64_t bound(std::int64_t n) const { return std::llround(element(*args->cu_seqlens, {n})); }

  /// o[t, j] = scale sum_i q[t, i] (decayed h0[i, j] + sum over s up to t of decayed k[s, i] v[s,
  /// j]), every decay summed anew.
  double expected(std::int64_t n, std::int64_t b, std::int64_t begin, std::int64_t end,
                  std::int64_t t, std::int64_t h, std::int64_t j) const {
    const std::int64_t kv = h * problem.Hkv / problem.H;
    const std::int64_t step = problem.reverse ? -1 : 1;
    const std::int64_t first = problem.reverse ? end - 1 : begin;
    double sum = 0;
    for (std::int64_t i = 0; i < problem.K; ++i) {
      double states = 0;
      double log_decay = 0;  // of what came before s, up to t
      for (std::int64_t s = t;; s -= step) {
        states +=
            std::exp(log_decay) * element(args->k, {b, s, kv, i}) * element(args->v, {b, s, kv, j});
        log_decay += decay(n, b, s, h, i, j);
        if (s == first) break;
      }
      if (args->initial_state) {
        states += std::exp(log_decay) * element(*args->initial_state, {n, h, i, j});
      }
      sum += args->scale * element(args->q, {b, t, h, i}) * states;
    }
    return sum;
  }

  Problem problem;
  std::unique_ptr<Case> made;
  const Args* args = nullptr;
};

TEST_P(Recurrences, AreTheSumsThatTheyComeTo) {
  const std::vector<double> o = forward_in_double(problem, *args).o;
  ASSERT_EQ(o.size(), static_cast<std::size_t>(problem.B * problem.T * problem.H * problem.V));
  std::size_t compared = 0;
  for (std::int64_t n = 0; n < problem.sequences(); ++n) {
    const bool packed = problem.N > 0;
    const std::int64_t b = packed ? 0 : n;
    const std::int64_t begin = packed ? bound(n) : 0;
    const std::int64_t end = packed ? bound(n + 1) : problem.T;
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t h = 0; h < problem.H; ++h) {
        for (std::int64_t j = 0; j < problem.V; ++j, ++compared) {
          const std::int64_t at = ((b * problem.T + t) * problem.H + h) * problem.V + j;
          ASSERT_NEAR(o[static_cast<std::size_t>(at)], expected(n, b, begin, end, t, h, j), 1e-9)
              << n << ' ' << t << ' ' << h << ' ' << j;
        }
      }
    }
  }
  EXPECT_EQ(compared, o.size());
}

/// The sums of terms of a tensor of so many elements.
struct Sums {
  explicit Sums(std::int64_t count) : of(static_cast<std::size_t>(count)) {}
  void add(std::int64_t to, double term) { of[static_cast<std::size_t>(to)] += term; }
  std::vector<double> of;
};

TEST_P(Recurrences, SummandsAreWhatIsReadAndWhatIsLeft) {
  const HostArguments copied(*args, cpu_device());
  const ForwardInDouble forward = forward_in_double(problem, *args);
  std::vector<double> dq(static_cast<std::size_t>(element_count(args->q.shape)));
  const std::int64_t rows = problem.B * problem.T * problem.H;
  const std::int64_t heads = problem.sequences() * problem.H;
  Sums g(rows), gk(rows * problem.K), gv(rows * problem.V), gamma(problem.H), gamma_of_each(heads);
  Sums g_left(heads), gk_left(heads * problem.K), gv_left(heads * problem.V);
  Sums gamma_left(problem.H), gamma_left_of_each(heads);
  for (std::int64_t n = 0; n < problem.sequences(); ++n) {
    const SequenceSpan span = sequence_span(problem, copied.args(), n);
    for (std::int64_t h = 0; h < problem.H; ++h) {
      const std::int64_t head = n * problem.H + h;
      for (std::int64_t t = span.begin; t < span.end; ++t) {
        const std::int64_t row = (span.batch * problem.T + t) * problem.H + h;
        for (std::int64_t i = 0; i < problem.K; ++i) {
          const std::int64_t at = row * problem.K + i;
          dq[static_cast<std::size_t>(at)] = 1 + static_cast<double>(at % 7);
          const double read =
              element(args->q, {span.batch, t, h, i}) * dq[static_cast<std::size_t>(at)];
          gk.add(at, read);
          g.add(row, read);
          gamma.add(h, read);
          gamma_of_each.add(head, read);
        }
        for (std::int64_t j = 0; args->d_o && j < problem.V; ++j) {
          gv.add(row * problem.V + j, element(*args->d_o, {span.batch, t, h, j}) *
                                          forward.o[static_cast<std::size_t>(row * problem.V + j)]);
        }
      }
      if (!args->dfinal_state) continue;
      for (std::int64_t i = 0; i < problem.K; ++i) {
        for (std::int64_t j = 0; j < problem.V; ++j) {
          const std::int64_t at = (head * problem.K + i) * problem.V + j;
          const double left = element(*args->dfinal_state, {n, h, i, j}) *
                              forward.final_state[static_cast<std::size_t>(at)];
          const auto tokens = static_cast<double>(span.end - span.begin);
          g_left.add(head, left);
          gk_left.add(head * problem.K + i, left);
          gv_left.add(head * problem.V + j, left);
          gamma_left.add(h, tokens * left);
          gamma_left_of_each.add(head, tokens * left);
        }
      }
    }
  }
  const GateSummands summands(problem, copied.args(), dq);
  const auto near = [](double actual, const Sums& read, const Sums& left) {
    EXPECT_NEAR(actual, rms(read.of) + rms(left.of), 1e-9 * (1 + actual));
  };
  near(summands.rms_of_g(), g, g_left);
  near(summands.rms_of_gk(), gk, gk_left);
  if (args->gv) near(summands.rms_of_gv(), gv, gv_left);
  near(summands.rms_of_gamma(false), gamma, gamma_left);
  near(summands.rms_of_gamma(true), gamma_of_each, gamma_left_of_each);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Recurrences,
    testing::Values("B=2 T=5 H=2 K=3 V=4", "B=2 T=5 H=4 Hkv=2 K=3 V=2 gate=g+gk+gv+gamma h0=yes",
                    "B=1 T=6 H=2 K=2 V=3 gate=gk+gamma h0=yes reverse=yes",
                    "B=1 T=9 H=2 K=2 V=3 N=3 gate=g+gv h0=yes",
                    "B=2 T=4 H=2 K=2 V=3 gate=gamma+gv h0=yes ht=yes",
                    "B=1 T=9 H=2 K=2 V=3 N=3 gate=g+gamma h0=yes ht=yes do=no reverse=yes"));

TEST(RandomValues, AreNormalAndTheSameForOneSeed) {
  constexpr std::int64_t kCount = 3 * 65'536 + 5;  // of several blocks, the last of them short
  const Tensor values = RandomValues(7).normal(DType::kF32, {kCount}, 2);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (const float value : values.values<float>()) {
    sum += value;
    squares += double(value) * double(value);
    largest = std::max(largest, std::abs(double(value)));
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kCount), 2, 0.02);
  EXPECT_LE(largest, 2 * 3.5);
  EXPECT_GT(largest, 2 * 3.0);
  const Tensor again = RandomValues(7).normal(DType::kF32, {kCount}, 2);
  EXPECT_EQ(to_doubles(again), to_doubles(values));
  EXPECT_NE(to_doubles(RandomValues(8).normal(DType::kF32, {kCount}, 2)), to_doubles(values));
}

TEST(RandomValues, AreEvenBetweenTheirBounds) {
  RandomValues random(3);
  constexpr std::int64_t kCount = 65'536;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<double> values = to_doubles(random.uniform(dtype, {kCount}, -1, 3));
    double sum = 0;
    for (const double value : values) {
      ASSERT_GE(value, -1);
      ASSERT_LE(value, 3);
      sum += value;
    }
    EXPECT_NEAR(sum / kCount, 1, 0.03);
  }
  const double first = random.next();
  const double second = random.next();
  EXPECT_NE(first, second);
  for (const double value : {first, second}) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1);
  }
}

}  // namespace
}  // namespace attune::ops
