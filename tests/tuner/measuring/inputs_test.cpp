// Candidates that write where they must not: into their inputs, or beside their tensors. The case's
// tensors are the device's, as those of real ops are.
#include <cstring>
#include <memory>

#include <gmock/gmock.h>

#include <attune/core/tensor.hpp>

#include "measuring/correctness.hpp"
#include "tuner/fake_device.hpp"
#include "tuner/scaling_op.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using tuning::Check;
using tuning::Verdict;

constexpr std::int64_t kRows = 16;

class OnDevice;
using OnDeviceConfig = TiledConfigOf<OnDevice>;
using OnDeviceScript = ScriptOf<OnDeviceConfig>;

class OnDeviceCase final : public Case {
 public:
  explicit OnDeviceCase(const Device& device);
  ProblemRef problem() const override;
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    std::memset(y_.view().data, std::to_integer<int>(poison), y_.bytes());
  }
  std::vector<NamedTensor> outputs() const override { return {{"y", y_.view()}}; }
  std::vector<OutputCheck> compare(const TensorMap&) const override {
    return {OutputCheck{.name = "y", .passed = true}};
  }

 private:
  Tensor x_, y_;
  ScalingProblem problem_{.rows = kRows};
  ScalingArgs args_;
};

class OnDevice {
 public:
  static constexpr std::string_view kName = "on_device";
  static constexpr std::string_view kSummary = "doubles its input in the device's memory";
  using Problem = ScalingProblem;
  using Args = ScalingArgs;
  static constexpr auto fields() { return std::tuple{field("rows", &Problem::rows)}; }
  static std::unique_ptr<Case> make_case(const Problem&, const Device& device, std::uint64_t) {
    return std::make_unique<OnDeviceCase>(device);
  }
  static Problem reduced(const Problem& problem) { return problem; }
  static double bytes(const Problem&) { return 1; }
  static double flops(const Problem&) { return 1; }
};

OnDeviceCase::OnDeviceCase(const Device& device)
    : x_(DType::kF32, {kRows}, device), y_(DType::kF32, {kRows}, device) {
  device.fill(x_.view().data, std::byte{0}, x_.bytes(), nullptr);
  args_ = {static_cast<const float*>(x_.view().data), static_cast<float*>(y_.view().data)};
}
ProblemRef OnDeviceCase::problem() const { return ProblemRef::of<OnDevice>(problem_); }

class InputsTest : public testing::Test {
 protected:
  using Compute =
      std::function<void(const ScalingProblem&, const ScalingArgs&, const OnDeviceConfig&)>;

  Verdict check(Compute compute, Check kind = Check::kReduced) {
    const std::unique_ptr<const ErasedKernel> kernel =
        scripted(world, OnDeviceScript{.compute = std::move(compute)});
    const OpInfo op = op_info<OnDevice>();
    const ScalingProblem problem{.rows = kRows};
    tuning::Harness harness(op, ProblemRef::of<OnDevice>(problem), device, 1);
    return check_on(harness, {kernel.get(), kernel->parse({})}, {}, kind);
  }
  static void fill(const ScalingArgs& args) {
    for (std::int64_t i = 0; i < kRows; ++i) args.y[i] = 1;
  }
  static float* input_of(const ScalingArgs& args) { return const_cast<float*>(args.x); }

  World world;
  FakeDevice device{world};
};

TEST_F(InputsTest, WhoeverLeavesThemAloneIsRight) {
  const Verdict verdict = check([](const auto&, const auto& args, const auto&) { fill(args); });
  EXPECT_TRUE(verdict.ok()) << verdict.reason;
}

TEST_F(InputsTest, WhoeverChangesThemIsWrong) {
  const auto change = [](const auto&, const ScalingArgs& args, const auto&) {
    fill(args);
    input_of(args)[kRows - 1] = 1;
  };
  EXPECT_EQ(check(change).outcome, TrialOutcome::kWrong);
  EXPECT_EQ(check(change).reason, "changes its inputs");
  EXPECT_TRUE(check(change, Check::kFullSize).ok()) << "where that was looked at before";
}

TEST_F(InputsTest, WhoeverWritesBesideATensorIsWrong) {
  const Verdict past = check([](const auto&, const ScalingArgs& args, const auto&) {
    fill(args);
    args.y[kRows] = 1;
  });
  EXPECT_EQ(past.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(past.reason, HasSubstr("past the end of a block of 64 bytes"));
  const Verdict before = check([](const auto&, const ScalingArgs& args, const auto&) {
    fill(args);
    input_of(args)[-1] = 1;
  });
  EXPECT_THAT(before.reason, HasSubstr("before a block of 64 bytes"));
}

}  // namespace
}  // namespace attune::test
