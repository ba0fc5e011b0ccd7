// Sizes of problems: which are legal, what reducing them keeps, and the bytes that they come to.
#include <cstdint>

#include <gtest/gtest.h>

#include <attune/core/error.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::ops {
namespace {

using AttentionProblem = RecurrentAttentionProblem;
using DecodeProblem = RecurrentDecodeProblem;

TEST(ReducedProblem, OfADecodeKeepsTheGroupsOfHeads) {
  DecodeProblem problem;
  problem.B = 64;
  problem.H = 12;
  problem.Hkv = 3;
  problem.K = problem.V = 8;
  const DecodeProblem small = RecurrentDecode::reduced(problem);
  EXPECT_EQ(small.H, 8);
  EXPECT_EQ(small.Hkv, 2);
}

TEST(Formulas, OfADecodeCountEachGateOnce) {
  DecodeProblem problem;
  problem.B = problem.S = 3;
  problem.H = 2;
  problem.Hkv = 1;
  problem.K = 8;
  problem.V = 4;
  problem.dtype = DType::kBF16;
  problem.gates = kGateG | kGateGk | kGateGv;
  problem.slots = false;
  RecurrentDecode::complete(problem);
  const double without = 3 * (2 + 1) * (8 + 4) * 2 + 2 * 3 * 2 * 8 * 4 * 4;
  EXPECT_EQ(RecurrentDecode::bytes(problem), without + 3 * 2 * (1 + 8 + 4) * 4);
  problem.gate_dtype = GateDType::kIo;
  EXPECT_EQ(RecurrentDecode::bytes(problem), without + 3 * 2 * (1 + 8 + 4) * 2);
}

template <class Op>
bool is_legal(typename Op::Problem problem) {
  try {
    Op::complete(problem);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

TEST(ProblemSizes, AreRefusedBelowTheLeastThatEachMayBe) {
  const auto attention = [](std::int64_t AttentionProblem::*field, std::int64_t value) {
    AttentionProblem problem;
    problem.T = problem.K = problem.V = 2;
    problem.*field = value;
    return is_legal<RecurrentAttention>(problem);
  };
  using A = AttentionProblem;
  for (const auto field : {&A::B, &A::T, &A::N}) {
    EXPECT_TRUE(attention(field, 0));
    EXPECT_FALSE(attention(field, -1));
  }
  for (const auto field : {&A::H, &A::K, &A::V}) {
    EXPECT_TRUE(attention(field, 1));
    EXPECT_FALSE(attention(field, 0));
  }
  EXPECT_TRUE(attention(&A::Hkv, 0)) << "as many as H";
  EXPECT_FALSE(attention(&A::Hkv, -1));
  EXPECT_FALSE(attention(&A::Hkv, 2)) << "no divisor of H";

  const auto decode = [](std::int64_t DecodeProblem::*field, std::int64_t value) {
    DecodeProblem problem;
    problem.K = problem.V = 2;
    problem.*field = value;
    return is_legal<RecurrentDecode>(problem);
  };
  using D = DecodeProblem;
  EXPECT_TRUE(decode(&D::B, 0));
  EXPECT_FALSE(decode(&D::B, -1));
  EXPECT_FALSE(decode(&D::S, -1));
  for (const auto field : {&D::H, &D::K, &D::V}) {
    EXPECT_TRUE(decode(field, 1));
    EXPECT_FALSE(decode(field, 0));
  }
  EXPECT_FALSE(decode(&D::Hkv, -1));
  EXPECT_FALSE(decode(&D::Hkv, 2));
}

TEST(ProblemSizes, AreRefusedWhereATensorWouldNotFit) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 61;
  const auto attention = [](std::int64_t tokens, std::int64_t keys, std::int64_t values) {
    AttentionProblem problem;
    problem.T = tokens;
    problem.K = keys;
    problem.V = values;
    return is_legal<RecurrentAttention>(problem);
  };
  EXPECT_TRUE(attention(kLarge / 4, 1, 1));
  EXPECT_FALSE(attention(kLarge / 4, 2, 1));
  EXPECT_FALSE(attention(kLarge / 4, 1, 2));
  EXPECT_FALSE(attention(1, std::int64_t{1} << 30, std::int64_t{1} << 30)) << "the state";
  const auto decode = [](std::int64_t rows, std::int64_t keys, std::int64_t values) {
    DecodeProblem problem;
    problem.B = rows;
    problem.S = 1;
    problem.K = keys;
    problem.V = values;
    return is_legal<RecurrentDecode>(problem);
  };
  EXPECT_TRUE(decode(kLarge / 4, 1, 1));
  EXPECT_FALSE(decode(kLarge / 4, 2, 1));
  EXPECT_FALSE(decode(kLarge / 4, 1, 2));
  EXPECT_FALSE(decode(1, std::int64_t{1} << 30, std::int64_t{1} << 30));
}

TEST(Formulas, CountTheBoundsOfPackedSequences) {
  AttentionProblem problem;
  problem.T = 10;
  problem.K = 8;
  problem.V = 4;
  problem.h0 = problem.ht = true;
  RecurrentAttention::complete(problem);
  const double alone = RecurrentAttention::bytes(problem);
  const double state = 8 * 4 * 4;
  problem.N = 3;
  EXPECT_EQ(RecurrentAttention::bytes(problem), alone + 2 * 2 * state + 4 * 8);
  EXPECT_EQ(RecurrentAttentionBackward::bytes(problem) - RecurrentAttentionBackward::bytes([&] {
              AttentionProblem one = problem;
              one.N = 0;
              return one;
            }()),
            2 * 3 * state + 4 * 8);
}

}  // namespace
}  // namespace attune::ops
