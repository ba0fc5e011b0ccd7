// Problems of attune's ops as text, their shorthands, and the small ones they are checked on.
#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>

#include "ops/case_support.hpp"

namespace attune::test {
namespace {

using ops::GateDType;
using ops::Layout;
using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using ops::RecurrentDecode;
using testing::HasSubstr;

AnyProblem parse(std::string_view op, std::string_view text) {
  return all_ops().op(op).parse(parse_params(text, ' '));
}

RecurrentAttention::Problem attention(std::string_view text,
                                      std::string_view op = "recurrent_attention") {
  const AnyProblem problem = parse(op, text);
  return ProblemRef(problem).as<RecurrentAttention>();
}

RecurrentDecode::Problem decode(std::string_view text) {
  const AnyProblem problem = parse("recurrent_decode", text);
  return ProblemRef(problem).as<RecurrentDecode>();
}

std::string refusal(std::string_view op, std::string_view text) {
  try {
    parse(op, text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

/// The fields that both ops have, drawn at random.
template <class Problem>
Problem random_fields(std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Problem p;
  p.B = draw(0, 5);
  p.Hkv = draw(1, 4);
  p.H = p.Hkv * draw(1, 4);
  p.K = draw(1, 300);
  p.V = draw(1, 300);
  p.dtype = static_cast<DType>(draw(0, 2));
  p.gates = static_cast<std::int32_t>(draw(0, 15));
  p.gate_dtype = static_cast<GateDType>(draw(0, 1));
  p.aligned = draw(0, 1) == 1;
  p.tf32 = draw(0, 1) == 1;
  return p;
}

TEST(RecurrentAttentionProblem, SurvivesItsText) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    auto p = random_fields<RecurrentAttention::Problem>(random);
    p.T = static_cast<std::int64_t>(random() % 3000);
    p.N = random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 9 + 1);
    if (p.N > 0) p.B = 1;
    p.layout = static_cast<Layout>(random() % 3);
    p.h0 = random() % 2 == 0;
    p.ht = random() % 2 == 0;
    p.reverse = random() % 2 == 0;
    p.d_o = !p.ht || random() % 2 == 0;
    RecurrentAttention::complete(p);
    const std::string text = problem_text<RecurrentAttentionBackward>(p);
    EXPECT_EQ(parse_problem<RecurrentAttentionBackward>(parse_params(text, ' ')), p) << text;
  }
}

TEST(RecurrentDecodeProblem, SurvivesItsText) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    auto p = random_fields<RecurrentDecode::Problem>(random);
    p.S = p.B + static_cast<std::int64_t>(random() % 5);
    p.slots = random() % 2 == 0;
    p.layout = random() % 2 == 0 ? Layout::kBthd : Layout::kStrided;
    RecurrentDecode::complete(p);
    const std::string text = problem_text<RecurrentDecode>(p);
    EXPECT_EQ(parse_problem<RecurrentDecode>(parse_params(text, ' ')), p) << text;
  }
}

TEST(RecurrentAttentionProblem, TakesDForKAndV) {
  const auto p = attention("T=3 D=64");
  EXPECT_EQ(p.K, 64);
  EXPECT_EQ(p.V, 64);
  EXPECT_EQ(p.Hkv, p.H);
  EXPECT_EQ(refusal("recurrent_attention", "T=3 D=64 V=32"),
            "recurrent_attention: D: given together with V, expected one of them");
}

TEST(RecurrentAttentionProblem, HasOneSpellingForOneProblem) {
  EXPECT_EQ(attention("T=1 H=4 D=8 layout=bhtd").layout, Layout::kBthd);
  EXPECT_EQ(attention("T=4 H=1 D=8 layout=bhtd").layout, Layout::kBthd);
  EXPECT_EQ(attention("T=4 H=4 D=8 layout=bhtd").layout, Layout::kBhtd);
  EXPECT_FALSE(attention("T=4 K=3 V=4").aligned);
  EXPECT_TRUE(attention("T=4 K=3 V=4 layout=strided").aligned);
  EXPECT_FALSE(attention("T=4 D=4 dtype=bf16 tf32=yes").tf32);
  EXPECT_EQ(attention("T=4 D=4 gate=gamma gate_dtype=io dtype=bf16").gate_dtype, GateDType::kF32);
}

TEST(RecurrentAttentionProblem, RefusesWhatIsNotLegal) {
  EXPECT_EQ(refusal("recurrent_attention", "T=3 V=4"),
            "recurrent_attention: K: got 0, expected at least 1");
  EXPECT_EQ(refusal("recurrent_attention", "T=3 D=4 H=4 Hkv=3"),
            "recurrent_attention: Hkv: got 3, expected a divisor of H");
  EXPECT_EQ(refusal("recurrent_attention", "B=2 T=3 D=4 N=2"),
            "recurrent_attention: B: got 2, expected 1 with N packed sequences");
  EXPECT_THAT(refusal("recurrent_attention", "T=3 D=4 H=0"),
              HasSubstr("H: got 0, expected at least 1"));
  EXPECT_THAT(refusal("recurrent_attention", "B=4611686018427387904 T=3 D=4"),
              HasSubstr("tensors of at most 2^63 - 1 bytes"));
  EXPECT_THAT(refusal("recurrent_attention", "T=3 D=4 gate=g gate_dtype=mixed dtype=bf16"),
              HasSubstr("mixed only with two gates or more"));
  EXPECT_THAT(refusal("recurrent_attention.backward", "T=3 D=4 do=no"), HasSubstr("do: "));
  EXPECT_THAT(refusal("recurrent_attention", "T=3 D=4 dtype=i64"), HasSubstr("dtype=i64"));
}

TEST(RecurrentDecodeProblem, HasASlotForEachRowUnlessSaidOtherwise) {
  EXPECT_EQ(decode("B=3 D=4").S, 3);
  EXPECT_EQ(decode("B=3 S=2 D=4").S, 2);
  EXPECT_THAT(refusal("recurrent_decode", "B=3 S=2 D=4 slots=no"),
              HasSubstr("S: got 2, expected at least B without slot indices"));
  EXPECT_THAT(refusal("recurrent_decode", "B=3 D=4 layout=bhtd"), HasSubstr("layout: "));
}

TEST(Aliases, HaveGatesOfTheirOwn) {
  EXPECT_EQ(attention("T=3 D=4", "gated_linear_attention").gates, ops::kGateGk);
  EXPECT_EQ(attention("T=3 D=4 gate=gk+gamma", "gated_linear_attention").gates,
            ops::kGateGk | ops::kGateGamma);
  EXPECT_EQ(refusal("gated_linear_attention", "T=3 D=4 gate=g"),
            "gated_linear_attention: gate: got g, expected gk or gamma+gk");
  EXPECT_EQ(attention("T=3 D=4", "lightning_attention").gates, ops::kGateGamma);
  EXPECT_EQ(refusal("lightning_attention", "T=3 D=4 gate=none"),
            "lightning_attention: gate: got none, expected gamma");
  const AnyProblem backward = parse("lightning_attention.backward", "T=3 D=4");
  EXPECT_EQ(backward.op(), RecurrentAttentionBackward::kName);
}

TEST(ReducedProblem, IsSmallAndHasTheSameCodePaths) {
  const auto large = attention(
      "N=64 T=100000 H=64 Hkv=16 K=128 V=256 dtype=bf16 gate=gk+gamma h0=yes "
      "ht=yes reverse=yes layout=bhtd");
  const auto small = RecurrentAttention::reduced(large);
  EXPECT_EQ(
      problem_text<RecurrentAttention>(small),
      "B=1 T=95 H=8 Hkv=2 K=128 V=256 N=3 dtype=bf16 gate=gamma+gk gate_dtype=f32 h0=yes ht=yes "
      "reverse=yes layout=bhtd aligned=yes tf32=no");
  EXPECT_EQ(RecurrentAttention::reduced(attention("B=9 T=64 D=8")).T, 63);
  EXPECT_EQ(RecurrentAttention::reduced(attention("B=9 T=64 D=8")).B, 2);
  EXPECT_EQ(RecurrentAttention::reduced(attention("B=9 T=1 D=8")).T, 1);
  EXPECT_EQ(RecurrentAttention::reduced(attention("B=0 T=0 D=8")).T, 0);
}

TEST(ReducedProblem, OfADecodeLeavesARowOfPadding) {
  const auto small = RecurrentDecode::reduced(decode("B=256 S=1000 H=8 Hkv=8 D=128"));
  EXPECT_EQ(small.B, 5);
  EXPECT_EQ(small.S, 4);
  EXPECT_EQ(small.H, 2);
  EXPECT_EQ(RecurrentDecode::reduced(decode("B=256 D=8 slots=no")).S, 5);
  EXPECT_EQ(RecurrentDecode::reduced(decode("B=1 D=8")).S, 1);
}

TEST(Formulas, CountEachTensorOnce) {
  const auto p = attention("B=2 T=10 H=4 Hkv=2 K=8 V=16 dtype=bf16 gate=g+gk+gamma h0=yes ht=yes");
  const double q = 2 * 10 * 4 * 8 * 2, k = q / 2, v = 2 * 10 * 2 * 16 * 2, o = 2 * v;
  const double gates = 2 * 10 * 4 * 4 + 2 * 10 * 4 * 8 * 4 + 4 * 4;
  const double state = 2 * 4 * 8 * 16 * 4;
  EXPECT_EQ(RecurrentAttention::bytes(p), q + k + v + o + gates + 2 * state);
  EXPECT_EQ(RecurrentAttentionBackward::bytes(p), 2 * (q + k + v) + o + 2 * gates + 3 * state);
  EXPECT_EQ(RecurrentAttention::flops(p), 4.0 * 2 * 10 * 4 * 8 * 16);
  EXPECT_EQ(RecurrentAttentionBackward::flops(p), 12.0 * 2 * 10 * 4 * 8 * 16);
}

TEST(Formulas, CountOnlyTheStatesThatADecodeTouches) {
  const auto p = decode("B=3 S=100 H=2 K=8 V=4 gate=gamma");
  const double rows = 3 * (2 + 2) * (8 + 4) * 4, states = 2.0 * 3 * 2 * 8 * 4 * 4;
  EXPECT_EQ(RecurrentDecode::bytes(p), rows + 2 * 4 + states + 3 * 8);
  EXPECT_EQ(RecurrentDecode::flops(p), 4.0 * 3 * 2 * 8 * 4);
}

}  // namespace
}  // namespace attune::test
