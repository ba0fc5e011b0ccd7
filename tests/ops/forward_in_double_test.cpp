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
  const std::vector<double> o = forward_in_double(problem, *args);
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

TEST_P(Recurrences, SumsOfSummandsAreOfTheGatesShapes) {
  const HostArguments copied(*args, cpu_device());
  const std::vector<double> q = to_doubles(args->q);
  std::vector<double> dq(q.size());
  for (std::size_t i = 0; i < dq.size(); ++i) dq[i] = 1 + static_cast<double>(i % 7);
  double of_gk = 0;
  double of_g = 0;
  std::vector<double> of_heads(static_cast<std::size_t>(problem.H));
  for (std::size_t row = 0; row * static_cast<std::size_t>(problem.K) < q.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(problem.K); ++i) {
      const std::size_t at = row * static_cast<std::size_t>(problem.K) + i;
      of_gk += std::pow(q[at] * dq[at], 2);
      sum += q[at] * dq[at];
    }
    of_g += sum * sum;
    of_heads[row % of_heads.size()] += sum;
  }
  const double rows = static_cast<double>(q.size()) / static_cast<double>(problem.K);
  EXPECT_NEAR(summand_rms_of_gk(copied.args(), dq), std::sqrt(of_gk / (rows * double(problem.K))),
              1e-9);
  EXPECT_NEAR(summand_rms_of_g(problem, copied.args(), dq), std::sqrt(of_g / rows), 1e-9);
  EXPECT_NEAR(summand_rms_of_gamma(problem, copied.args(), dq, false), rms(of_heads), 1e-9);

  const double each = summand_rms_of_gamma(problem, copied.args(), dq, true);
  const double of_sequences = each * each * static_cast<double>(problem.sequences() * problem.H);
  double expected_sum = 0;
  for (std::int64_t n = 0; n < problem.sequences(); ++n) {
    const SequenceSpan span = sequence_span(problem, copied.args(), n);
    for (std::int64_t h = 0; h < problem.H; ++h) {
      double sum = 0;
      for (std::int64_t t = span.begin; t < span.end; ++t) {
        for (std::int64_t i = 0; i < problem.K; ++i) {
          const auto at = static_cast<std::size_t>(
              ((span.batch * problem.T + t) * problem.H + h) * problem.K + i);
          sum += q[at] * dq[at];
        }
      }
      expected_sum += sum * sum;
    }
  }
  EXPECT_NEAR(of_sequences, expected_sum, 1e-6 * (1 + expected_sum));

  if (!args->d_o) {
    EXPECT_EQ(summand_rms_of_gv(problem, copied.args()), 0);
    return;
  }
  std::vector<double> terms = forward_in_double(problem, *args);
  const std::vector<double> d_o = to_doubles(*args->d_o);
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] *= d_o[i];
  EXPECT_NEAR(summand_rms_of_gv(problem, copied.args()), rms(terms), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Recurrences,
    testing::Values("B=2 T=5 H=2 K=3 V=4", "B=2 T=5 H=4 Hkv=2 K=3 V=2 gate=g+gk+gv+gamma h0=yes",
                    "B=1 T=6 H=2 K=2 V=3 gate=gk+gamma h0=yes reverse=yes",
                    "B=1 T=9 H=2 K=2 V=3 N=3 gate=g+gv h0=yes",
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
