// Operands that may lack a dimension, that are there only with another one, and that are stored as
// states are, on an op of the test's own.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

using testing::HasSubstr;

/// Rows x[b, t, :] or x[b, :] added to a state, from a start of the same type where one is given
/// with weights.
struct Adding : OperandOp<Adding> {
  static constexpr std::string_view kName = "adding";
  struct Problem {
    std::int64_t B = 1, T = 0, C = 0;
    DType dtype = DType::kF32;
    DType state_dtype = DType::kF32;
    bool weighted = false;
    bool started = false;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    ConstTensorView x;
    std::optional<ConstTensorView> weights, start;
    TensorView state;
    TensorView y;
  };
  static constexpr std::array<std::string_view, 3> kTypes{"f32", "f16", "bf16"};
  static constexpr auto fields() {
    return std::tuple{field("B", &Problem::B),
                      field("C", &Problem::C),
                      field("T", &Problem::T).optional("tokens"),
                      choice("state", &Problem::state_dtype, kTypes).optional(),
                      flag("weighted", &Problem::weighted).optional(),
                      flag("started", &Problem::started).optional()};
  }
  static constexpr auto operands() {
    return std::tuple{input("x", &Args::x, dims("B", "T", "C")),
                      input("weights", &Args::weights, dims("B", "T")).given_by(&Problem::weighted),
                      input("start", &Args::start, dims("B", "C"))
                          .state_type()
                          .only_with("weights")
                          .given_by(&Problem::started),
                      state("state", &Args::state, dims("B", "C")).state_type(),
                      output("y", &Args::y, dims("B", "T", "C"))};
  }
  static constexpr auto sizes() { return std::array{size_rule("T").absent_at_0()}; }
};

class AbsentDimension : public testing::Test {
 protected:
  TensorView made(const Extents& shape, DType dtype = DType::kF32) {
    return tensors_.emplace_back(dtype, shape).view();
  }
  Adding::Problem complete() { return OperandCall(OperandRules<Adding>(), args_).complete(); }
  std::string refusal() {
    try {
      complete();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }

  std::vector<Tensor> tensors_;
  Adding::Args args_{.x = made({2, 3, 5}),
                     .weights = {},
                     .start = {},
                     .state = made({2, 5}),
                     .y = made({2, 3, 5})};
};

TEST_F(AbsentDimension, IsThereInAllOperandsOrInNone) {
  EXPECT_EQ(complete(), (Adding::Problem{.B = 2, .T = 3, .C = 5}));
  args_.x = made({2, 5});
  EXPECT_EQ(refusal(), "adding: y: shape [2, 3, 5], expected [2, 5]");
  args_.y = made({2, 5});
  EXPECT_EQ(complete(), (Adding::Problem{.B = 2, .T = 0, .C = 5}));
  args_.weights = made({2});
  EXPECT_TRUE(complete().weighted);
  args_.weights = made({2, 1});
  EXPECT_EQ(refusal(), "adding: weights: shape [2, 1], expected [2]");
}

TEST_F(AbsentDimension, IsNeverZeroWhereItIsThere) {
  args_.x = made({2, 0, 5});
  EXPECT_EQ(refusal(), "adding: x: shape [2, 0, 5], expected T >= 1");
  args_.x = made({2});
  EXPECT_EQ(refusal(), "adding: x: shape [2], expected [B, T, C] or without T");
}

TEST_F(AbsentDimension, IsLeftOutOfKeysCasesAndBytes) {
  EXPECT_EQ(problem_text<Adding>({.B = 2, .T = 0, .C = 5}), "B=2 C=5");
  for (const std::int64_t tokens : {0, 3}) {
    const Adding::Problem problem{.B = 2, .T = tokens, .C = 5, .state_dtype = DType::kBF16};
    const auto made_case = Adding::make_case(problem, cpu_device(), 1);
    const auto& args = *static_cast<const Adding::Args*>(made_case->args());
    EXPECT_EQ(args.x.shape, tokens == 0 ? (Extents{2, 5}) : (Extents{2, 3, 5}));
    EXPECT_EQ(args.state.dtype, DType::kBF16);
    EXPECT_EQ(made_case->problem().as<Adding>(), problem);
    const double rows = tokens == 0 ? 2 : 6;
    EXPECT_EQ(Adding::bytes(problem), 2 * rows * 5 * 4 + 2 * 2 * 5 * 2);
  }
}

TEST_F(AbsentDimension, IsSaidInTheManual) {
  EXPECT_EQ(operand_texts(operand_table<Adding>())[0].shape, "[B,C] or [B,T,C]");
}

TEST_F(AbsentDimension, StatesHaveOneTypeWhicheverTheOthersHave) {
  args_.state = made({2, 5}, DType::kF16);
  EXPECT_EQ(complete().state_dtype, DType::kF16);
  EXPECT_EQ(complete().dtype, DType::kF32);
  args_.weights = made({2, 3});
  args_.start = made({2, 5}, DType::kBF16);
  EXPECT_EQ(refusal(), "adding: state: dtype f16, expected bf16 (start's)");
  args_.state = made({2, 5}, DType::kI32);
  args_.start = std::nullopt;
  EXPECT_THAT(refusal(), HasSubstr("state: dtype i32, expected f32, f16 or bf16"));
}

TEST_F(AbsentDimension, AnOperandMayNeedAnother) {
  args_.start = made({2, 5});
  EXPECT_EQ(refusal(), "adding: start: given without weights");
  args_.weights = made({2, 3});
  EXPECT_TRUE(complete().started);
}

}  // namespace
}  // namespace attune
