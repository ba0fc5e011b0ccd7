// Who says what is right, and what is made of a candidate that differs.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/tuner/tuner.hpp>

#include "measuring/correctness.hpp"
#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tuning::Verdict;

/// A kernel that notes on which devices it is asked to run, and may be wrong there.
class NotingKernel final : public Kernel<TiledConfig> {
 public:
  explicit NotingKernel(std::string name) : name_(std::move(name)) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const ScalingProblem&, const DeviceInfo& device) const override {
    asked_on.push_back(device.name);
    return takes_problem ? Support::yes() : Support::no(refused::kShape, "not today");
  }
  TiledConfig heuristic_config(const ScalingProblem&, const DeviceInfo&) const override {
    return {};
  }
  void run(const ScalingProblem& problem, const ScalingArgs& args, const TiledConfig&,
           const LaunchSite&) const override {
    if (throws) throw std::runtime_error("out of order");
    for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = factor * args.x[i];
  }

  bool takes_problem = true;
  bool throws = false;
  float factor = 2;
  mutable std::vector<std::string> asked_on;

 private:
  std::string name_;
};

class OracleTest : public TunerTest {
 protected:
  OracleTest() {
    set_log_sink([this](LogLevel, std::string_view line) { logged += std::string(line) + "\n"; });
    auto made = std::make_unique<NotingKernel>("reference.noting");
    reference = made.get();
    auto other = std::make_unique<NotingKernel>("test.standard");
    standard = other.get();
    auto third = std::make_unique<NotingKernel>("test.candidate");
    tried = third.get();
    reference_ = std::move(made);
    registry.add(std::move(other), {.platform = "test"});
    registry.add(std::move(third), {.platform = "test"});
  }
  ~OracleTest() override { set_log_sink({}); }

  /// Registers the reference for a backend, and asks about `tried`.
  std::optional<Verdict> check(std::string_view backend) {
    registry.add(std::move(reference_), {.platform = kReferencePlatform, .backend = backend});
    return check_by(registry.find_kernel("reference.noting"));
  }
  std::optional<Verdict> check_by(const RegisteredKernel* oracle) {
    tuning::Oracle of(*registry.find_op("scaling"), ProblemRef::of<Scaling>(problem), device, 1,
                      oracle, standard);
    return of.check(candidate("test.candidate", ""));
  }

  NotingKernel* reference = nullptr;
  NotingKernel* standard = nullptr;
  NotingKernel* tried = nullptr;
  std::string logged;

 private:
  std::unique_ptr<NotingKernel> reference_;
};

TEST_F(OracleTest, OfTheHostRunsThereWhereverCandidatesRun) {
  EXPECT_TRUE(check("cpu")->ok());
  EXPECT_THAT(reference->asked_on, ElementsAre(cpu_device().info().name));
}

TEST_F(OracleTest, OfTheDeviceItselfRunsOnIt) {
  EXPECT_TRUE(check("fake")->ok());
  EXPECT_THAT(reference->asked_on, ElementsAre("a fake device"));
}

TEST_F(OracleTest, OfAnyBackendRunsOnTheDevice) {
  EXPECT_TRUE(check("any")->ok());
  EXPECT_THAT(reference->asked_on, ElementsAre("a fake device"));
}

TEST_F(OracleTest, IsHeldAgainstTheCandidateAndNotTheDefault) {
  tried->factor = 3;
  standard->factor = 3;  // wrong in the same way
  EXPECT_EQ(check("cpu")->outcome, TrialOutcome::kWrong);
}

TEST_F(OracleTest, ThatDoesNotTakeTheProblemLeavesItToTheDefault) {
  reference->takes_problem = false;
  tried->factor = 3;
  EXPECT_EQ(check("cpu")->outcome, TrialOutcome::kWrong);
  EXPECT_EQ(logged, "");
}

TEST_F(OracleTest, ThatFailsLeavesItToTheDefaultAndIsSaidTo) {
  reference->throws = true;
  tried->factor = 3;
  EXPECT_EQ(check("cpu")->outcome, TrialOutcome::kWrong);
  EXPECT_THAT(logged, HasSubstr("the oracle reference.noting failed: out of order"));
}

TEST_F(OracleTest, WhereNobodyKnowsWhatIsRightIsSaidToBeNone) {
  reference->takes_problem = false;
  standard->throws = true;
  tried->factor = 3;
  EXPECT_TRUE(check("cpu")->ok());
  EXPECT_THAT(logged, HasSubstr("candidates are only checked to be finite and repeatable"));
}

TEST_F(OracleTest, WithoutAnOracleTheDefaultSaysWhatIsRight) {
  tried->factor = 3;
  EXPECT_EQ(check_by(nullptr)->outcome, TrialOutcome::kWrong);
  tried->factor = 2;
  EXPECT_TRUE(check_by(nullptr)->ok());
}

TEST_F(OracleTest, HasNothingToSayOfWhatDoesNotTakeTheReducedProblem) {
  tried->takes_problem = false;
  EXPECT_EQ(check("cpu"), std::nullopt);
}

TEST_F(OracleTest, ACandidateThatThrowsWhateverItIsHasFailed) {
  struct Odd {};
  add({.name = "test.odd", .compute = [](const auto&, const auto&, const auto&) { throw Odd(); }});
  add({.name = "test.large",
       .compute = [](const auto&, const auto&, const auto&) { throw std::bad_alloc(); }});
  tuning::Oracle of(*registry.find_op("scaling"), ProblemRef::of<Scaling>(problem), device, 1,
                    nullptr, standard);
  const std::optional<Verdict> odd = of.check(candidate("test.odd", ""));
  EXPECT_EQ(odd->outcome, TrialOutcome::kFailed);
  EXPECT_EQ(odd->reason, "threw what is no std::exception");
  EXPECT_EQ(of.check(candidate("test.large", ""))->reason, tuning::kOutOfMemory);
}

TEST_F(OracleTest, IsTheReferenceThatIsNearestToTheDevice) {
  const auto add_reference = [&](const std::string& name, std::string_view backend) {
    registry.add(std::make_unique<NotingKernel>(name),
                 {.platform = kReferencePlatform, .backend = backend});
  };
  const auto found = [&]() -> std::string {
    const RegisteredKernel* oracle = find_oracle(registry, "scaling", device);
    return oracle == nullptr ? "none" : std::string(oracle->kernel->name());
  };
  EXPECT_EQ(found(), "none") << "what is no reference says nothing";
  add_reference("reference.elsewhere", "elsewhere");
  EXPECT_EQ(found(), "none");
  add_reference("reference.host", "cpu");
  EXPECT_EQ(found(), "reference.host");
  EXPECT_EQ(&oracle_device(*find_oracle(registry, "scaling", device), device), &cpu_device());
  add_reference("reference.any", "any");
  EXPECT_EQ(found(), "reference.any");
  add_reference("reference.fake", "fake");
  EXPECT_EQ(found(), "reference.fake");
  EXPECT_EQ(&oracle_device(*find_oracle(registry, "scaling", device), device), &device);
  add_reference("reference.later", "fake");
  EXPECT_EQ(found(), "reference.fake") << "of equals the first";
}

}  // namespace
}  // namespace attune::test
