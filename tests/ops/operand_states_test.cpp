// Operands that are states: of one type, and given as a pool or by themselves.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

using testing::ElementsAre;

/// A pool of states of any type, or one state in and one out.
struct Storing : OperandOp<Storing> {
  static constexpr std::string_view kName = "storing";
  struct Problem {
    std::int64_t C = 0;
    DType state_dtype = DType::kF32;
    bool pool = false, start = false;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    std::optional<ConstTensorView> start = {};
    std::optional<TensorView> pool = {};
    std::optional<ConstTensorView> slots = {};
    std::optional<TensorView> end = {};
  };
  static constexpr auto fields() {
    return std::tuple{field("C", &Problem::C), flag("pool", &Problem::pool),
                      flag("start", &Problem::start)};
  }
  static constexpr auto operands() {
    return std::tuple{
        input("start", &Args::start, dims("C"))
            .state_type()
            .not_with("pool")
            .given_by(&Problem::start),
        state("pool", &Args::pool, dims("S", "C")).state_type().given_by(&Problem::pool),
        index("slots", &Args::slots, dims("R")).only_with("pool").given_by(&Problem::pool),
        output("end", &Args::end, dims("C"))
            .state_type()
            .not_with("pool")
            .given_by(&Problem::start)};
  }
};

std::string refusal_of(Storing::Args args) {
  try {
    OperandCall(OperandRules<Storing>(), args).complete();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(OperandStates, AreAllOfTheTypeOfTheFirst) {
  std::vector<float> memory(64);
  const auto view = [&](int at, DType dtype) { return TensorView(&memory[at], dtype, {4}); };
  Storing::Args args{.start = view(0, DType::kBF16), .end = view(8, DType::kBF16)};
  const Storing::Problem problem = OperandCall(OperandRules<Storing>(), args).complete();
  EXPECT_EQ(problem, (Storing::Problem{.C = 4, .state_dtype = DType::kBF16, .start = true}));
  EXPECT_EQ(Storing::bytes(problem), 2 * 4 * 2);
  args.end = view(8, DType::kF32);
  EXPECT_EQ(refusal_of(args), "storing: end: dtype f32, expected bf16 (start's)");
  args.start = view(0, DType::kI32);
  EXPECT_EQ(refusal_of(args), "storing: start: dtype i32, expected f32, f16 or bf16");
}

TEST(OperandStates, AreGivenInOneOfTwoWays) {
  std::vector<float> memory(64);
  const auto floats = [&](int at, const Extents& shape) { return TensorView(&memory[at], shape); };
  const std::int32_t slot = 0;
  const ConstTensorView slots(&slot, {1});
  Storing::Args args{.start = floats(0, {4}), .pool = floats(8, {2, 4}), .end = floats(32, {4})};
  EXPECT_EQ(refusal_of(args), "storing: start: given together with pool, expected one of the two");
  args.start = std::nullopt;
  EXPECT_EQ(refusal_of(args), "storing: end: given together with pool, expected one of the two");
  args.pool = std::nullopt;
  args.slots = slots;
  EXPECT_EQ(refusal_of(args), "storing: slots: given without pool");
}

TEST(OperandStates, OfAPoolInAFileLeaveOutTheOutputThatItExcludes) {
  TensorMap file;
  file.emplace("pool", Tensor::of(std::vector<float>{1, 2, 3, 4}, {2, 2}));
  file.emplace("slots", Tensor::of(std::vector<std::int32_t>{1}, {1}));
  const auto read = Storing::bind_case(file, {}, cpu_device());
  std::vector<std::string> names;
  for (const NamedTensor& output : read->outputs()) names.push_back(output.name);
  EXPECT_THAT(names, ElementsAre("pool"));
}

}  // namespace
}  // namespace attune
