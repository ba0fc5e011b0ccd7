// What follows from the operands that an op declares, on an op of the test's own.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

using testing::ElementsAre;

/// y[b, c] = scale * x[b, c], with a row of scales that may be given once for all of the batch.
struct Scaling : OperandOp<Scaling> {
  static constexpr std::string_view kName = "scaling";
  struct Problem {
    std::int64_t B = 1, G = 1, C = 0;
    DType dtype = DType::kF32;
    bool scaled = true;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    ConstTensorView x;
    std::optional<ConstTensorView> scale;
    TensorView y;
    std::optional<TensorView> dscale;
  };
  static constexpr auto fields() {
    return std::tuple{field("B", &Problem::B), field("G", &Problem::G), field("C", &Problem::C),
                      flag("scaled", &Problem::scaled)};
  }
  static constexpr auto operands() {
    return std::tuple{
        input("x", &Args::x, dims("B", "C")).contiguous(),
        input("scale", &Args::scale, dims("B", "G"))
            .f32()
            .leading(Leading::kMayBeMissing)
            .given_by(&Problem::scaled),
        output("y", &Args::y, dims("B", "C")).contiguous().may_be("x").in_files("out"),
        output("dscale", &Args::dscale, dims("B", "G"))
            .f32()
            .leading(Leading::kMayBeMissing)
            .gradient_of("scale")};
  }
  static constexpr auto sizes() {
    return std::array{size_rule("C").at_least(1), size_rule("G").divisor_of("C", "groups")};
  }
};

class Operands : public testing::Test {
 protected:
  float* memory() { return &floats_[static_cast<std::size_t>(64 * next_++)]; }
  TensorView f32(const Extents& shape) { return {memory(), shape}; }

  std::string refusal(ArgsForm form = ArgsForm::kCaller) {
    try {
      complete(form);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
  Scaling::Problem complete(ArgsForm form = ArgsForm::kCaller) {
    return OperandCall(OperandRules<Scaling>(), args, CheckLevel::kMemory, form).complete();
  }

  std::vector<float> floats_ = std::vector<float>(1024);
  int next_ = 0;
  Scaling::Args args{
      .x = f32({2, 6}), .scale = f32({2, 3}), .y = f32({2, 6}), .dscale = f32({2, 3})};
};

TEST_F(Operands, SayTheProblemOfACall) {
  EXPECT_EQ(complete(), (Scaling::Problem{.B = 2, .G = 3, .C = 6}));
  args.scale = std::nullopt;
  args.dscale = std::nullopt;
  EXPECT_FALSE(complete().scaled);
}

TEST_F(Operands, RefuseAShapeThatDoesNotFitTheOnesBeforeIt) {
  args.y.shape = {2, 5};
  EXPECT_EQ(refusal(), "scaling: y: shape [2, 5], expected [2, 6]");
  EXPECT_EQ(refusal(ArgsForm::kFile), "scaling: out: shape [2, 5], expected [2, 6]");
  args.x = f32({2, 0});
  EXPECT_EQ(refusal(), "scaling: x: shape [2, 0], expected C >= 1");
  args.x = f32({2});
  EXPECT_EQ(refusal(), "scaling: x: shape [2], expected [B, C]");
  args.x = f32({2, 6});
  args.scale = f32({2, 4});
  EXPECT_EQ(refusal(), "scaling: scale: 4 groups, expected a divisor of x's 6");
}

TEST_F(Operands, RefuseTypesStridesAndSharedMemory) {
  args.y.dtype = DType::kF16;
  EXPECT_EQ(refusal(), "scaling: y: dtype f16, expected f32 (x's)");
  args.y =
      TensorView(args.scale ? const_cast<void*>(args.scale->data) : nullptr, DType::kF32, {2, 6});
  EXPECT_EQ(refusal(), "scaling: y: overlaps scale, expected memory of its own");
  args.y = TensorView(const_cast<void*>(args.x.data), DType::kF32, {2, 6});
  EXPECT_EQ(refusal(), "") << "in place";
  args.x.strides = {12, 2};
  EXPECT_EQ(refusal(),
            "scaling: x: strides [12, 2], expected a contiguous last dimension (stride 1)");
}

TEST_F(Operands, GiveAGradientWithItsInputAndOfItsShape) {
  args.dscale = std::nullopt;
  EXPECT_EQ(refusal(), "scaling: dscale: not given, expected with scale");
  args.dscale = f32({3});
  EXPECT_EQ(refusal(), "scaling: dscale: shape [3], expected [2, 3] (scale's)");
  args.scale = std::nullopt;
  EXPECT_EQ(refusal(), "scaling: dscale: given without scale");
}

TEST_F(Operands, RepeatADimensionThatWasLeftOut) {
  args.scale = f32({3});
  args.dscale = f32({3});
  const Scaling::Problem problem = complete();
  EXPECT_EQ(args.scale->shape, (Extents{2, 3}));
  EXPECT_EQ(args.scale->strides, (Extents{0, 1}));
  EXPECT_EQ(args.dscale->strides, (Extents{0, 1}));
  EXPECT_EQ(problem_of_canonical(OperandRules<Scaling>(), args), problem);
}

TEST(OperandCases, HaveTheShapesOfTheirProblem) {
  const Scaling::Problem problem{.B = 2, .G = 3, .C = 6};
  const auto made = Scaling::make_case(problem, cpu_device(), 1);
  EXPECT_EQ(made->problem().as<Scaling>(), problem);
  std::vector<std::string> names;
  for (const NamedTensor& output : made->outputs()) names.push_back(output.name);
  EXPECT_THAT(names, ElementsAre("out", "dscale"));
  EXPECT_EQ(static_cast<const Scaling::Args*>(made->args())->scale->strides, (Extents{0, 1}));
  EXPECT_EQ(Scaling::bytes(problem), (2 * 6 + 3 + 2 * 6 + 3) * 4);
}

TEST(OperandCases, AreReadFromFiles) {
  TensorMap file;
  file.emplace("x", Tensor::of(std::vector<float>{1, 2, 3, 4}, {1, 4}));
  const auto read = Scaling::bind_case(file, {}, cpu_device());
  EXPECT_EQ(read->problem().as<Scaling>(),
            (Scaling::Problem{.B = 1, .G = 1, .C = 4, .scaled = false}));
}

TEST(OperandTexts, AreTheRowsOfAManual) {
  std::vector<std::string> rows;
  for (const OperandText& text : operand_texts(operand_table<Scaling>())) {
    rows.push_back(text.name + " " + text.shape + " " + text.types);
  }
  EXPECT_THAT(rows, ElementsAre("x [B,C] f32, f16, bf16", "scale [G] or [B,G] f32", "y [B,C] x's",
                                "dscale [G] or [B,G] f32"));
}

}  // namespace
}  // namespace attune
