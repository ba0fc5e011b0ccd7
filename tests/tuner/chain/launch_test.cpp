// Launches of what was chosen: what plans keep and refuse, and what is told of a launch.
#include <array>
#include <cstddef>

#include <gmock/gmock.h>

#include <attune/core/executor.hpp>
#include <attune/core/profiler.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> ranges;  // a profiler's, of this thread

void begin_range(const char* label) { ranges.emplace_back(label); }
void end_range() { ranges.emplace_back("end"); }

class LaunchTest : public ChainTest {
 protected:
  LaunchTest() { settings.policy = policy_of(Policy::kDb); }
  ~LaunchTest() override { set_profiler({}, ProfilerRanges::kOff); }

  Plan<Scaling> plan() { return Plan<Scaling>(problem, select(), device); }
  void launch(const Plan<Scaling>& plan, std::size_t begin = 0) {
    plan.launch({x.data(), y.data()}, nullptr,
                std::span(memory).subspan(begin, plan.workspace_bytes()));
  }

  alignas(64) std::array<std::byte, 4096> memory{};
  std::vector<float> x = std::vector<float>(100, 1.0F);
  std::vector<float> y = std::vector<float>(100);
};

TEST_F(LaunchTest, OfAPlanTakesAnAlignedWorkspaceAlone) {
  add_tiled();
  const Plan<Scaling> made = plan();
  ASSERT_GT(made.workspace_bytes(), 0U);
  launch(made);
  EXPECT_EQ(world.launches, 1);
  EXPECT_EQ(y[7], 2);
  try {
    launch(made, 16);
    FAIL() << "it is aligned to 16 bytes";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("scaling: workspace begins 16 bytes behind a multiple of "
                                        "64"));
  }
  EXPECT_EQ(world.launches, 1);
}

TEST_F(LaunchTest, OfAPlanIsTheSameAfterAReload) {
  add_tiled();
  settings.store.site_paths = {folder.file("site.db")};
  write(row("tile=16,threads=1"), "site.db");
  const Plan<Scaling> made = plan();
  write(row("tile=8,threads=1"), "site.db");
  chain().reload();
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(text(made.choice()), "test.scaling.tiled tile=16,threads=1");
  launch(made);
  EXPECT_EQ(world.launches, 1);
}

TEST_F(LaunchTest, IsARangeOfAProfilerWhenThatIsAskedFor) {
  add_tiled();
  ranges.clear();
  set_profiler({begin_range, end_range}, ProfilerRanges::kOff);
  launch(plan());
  EXPECT_THAT(ranges, IsEmpty());

  restart();
  set_profiler({begin_range, end_range}, ProfilerRanges::kChoices);
  const Plan<Scaling> made = plan();
  launch(made);
  EXPECT_THAT(ranges, ElementsAre("attune: choose for scaling rows=100 flavour=0", "end"));
  plan();  // memory answers
  EXPECT_EQ(ranges.size(), 2U);

  ranges.clear();
  set_profiler({begin_range, end_range}, ProfilerRanges::kLaunches);
  launch(made);
  EXPECT_THAT(ranges, ElementsAre("attune#scaling@v1:rows=100 flavour=0", "end"));
}

TEST_F(LaunchTest, OfATuningIsARangeOfAProfiler) {
  add_tiled();
  settings.policy = policy_of(Policy::kTune);
  ranges.clear();
  set_profiler({begin_range, end_range}, ProfilerRanges::kChoices);
  select();
  EXPECT_THAT(ranges, ElementsAre("attune: choose for scaling rows=100 flavour=0",
                                  "attune: tune scaling rows=100 flavour=0", "end", "end"));
}

TEST_F(LaunchTest, ThatThrowsIsAnEvent) {
  Registry ops;
  ops.add_op<Scaling>();
  Script script;
  script.compute = [](const ScalingProblem&, const ScalingArgs&, const TiledConfig&) {
    throw ExecutionError("the device is lost");
  };
  ops.add(scripted(world, std::move(script)), {.platform = "test"});
  Context context(std::move(ops), [&](const Registry& known, EventBus& bus) {
    return std::make_unique<ConfigSelectorChain>(known, bus, settings);
  });
  std::vector<std::string> reasons;
  const auto listening = context.events().subscribe([&](const Event& event) {
    if (event.kind == EventKind::kLaunchFailed && event.fault) reasons.emplace_back(event.reason);
  });
  const Executor executor(context);
  EXPECT_THROW(executor.run<Scaling>(problem, {x.data(), y.data()}, request()), ExecutionError);
  EXPECT_THAT(reasons, ElementsAre(StartsWith("the device is lost")));
}

}  // namespace
}  // namespace attune::test
