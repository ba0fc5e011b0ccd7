// Rows of the same CPU for another number of threads.
#include <gmock/gmock.h>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

/// A CPU of which calls may take `cores`.
std::string class_of(int cores, std::string_view rest = "l1=32K:l2=1M:l3=32M") {
  return str("cpu:x86-64:avx2:", cores, "c:", rest);
}
DeviceInfo cpu_with(int cores) { return describe_cpu_class(class_of(cores)).value(); }

/// As many threads as there are cores, tile=1.
Script by_cores() {
  return {.adapt = [](TiledConfig config, const DeviceInfo& device) {
    config.threads = device.cores >= 2 ? 2 : 1;
    return config;
  }};
}

class OtherCoresTest : public ChainTest {
 protected:
  OtherCoresTest() { settings.policy = policy_of(Policy::kDb); }
  ConfigRow row_for(int cores, const std::string& config) const {
    ConfigRow stored = row(config);
    stored.key.device_class = class_of(cores);
    return stored;
  }
  Choice select_on(const Device& on) { return select({.device = &on}); }

  FakeDevice one_core{world, cpu_with(1)};
  FakeDevice eight_cores{world, cpu_with(8)};
};

TEST_F(OtherCoresTest, ServeAProcessThatIsHeldToFewerCores) {
  add(by_cores());
  write(row_for(8, "tile=32,threads=2"));
  EXPECT_EQ(select_on(eight_cores).tier, Tier::kPersistent);
  const Choice held = select_on(one_core);
  EXPECT_EQ(held.tier, Tier::kHeuristic);
  EXPECT_EQ(text(held), "test.scaling.tiled tile=32,threads=1")
      << "as it was tuned, on as many threads as there are";
  const Decision decision = chain().explain(what(), {.device = &one_core});
  EXPECT_THAT(decision.notes[static_cast<std::size_t>(Tier::kHeuristic)].reason,
              HasSubstr("as tuned on this CPU for 8 threads"));
}

TEST_F(OtherCoresTest, TheNearestNumberOfThreadsServes) {
  add(by_cores());
  write(row_for(64, "tile=8,threads=2"));
  write(row_for(4, "tile=16,threads=2"));
  EXPECT_EQ(text(select_on(eight_cores)), "test.scaling.tiled tile=16,threads=2");
}

TEST_F(OtherCoresTest, ARowForAsManyThreadsComesFirst) {
  add(by_cores());
  write(row_for(8, "tile=32,threads=2"));
  write(row_for(1, "tile=4,threads=1"));
  EXPECT_EQ(text(select_on(one_core)), "test.scaling.tiled tile=4,threads=1");
}

TEST_F(OtherCoresTest, RowsOfAnotherCpuOrRequestDoNotServe) {
  add(by_cores());
  ConfigRow other_cpu = row_for(8, "tile=32,threads=2");
  other_cpu.key.device_class = class_of(8, "l1=32K:l2=2M:l3=32M");
  write(other_cpu);
  ConfigRow other_request = row_for(8, "tile=32,threads=2");
  other_request.key.platform = "test";
  write(other_request);
  ConfigRow other_objective = row_for(8, "tile=32,threads=2");
  other_objective.key.platform = "auto;objective=energy";
  write(other_objective);
  EXPECT_EQ(text(select_on(one_core)), kDefault);
}

TEST_F(OtherCoresTest, NotWhereTheHeuristicTakesAnotherKernelThere) {
  add(by_cores());
  Script alone = by_cores();
  alone.name = "test.scaling.alone";
  alone.expects_on = [](const DeviceInfo& on) { return on.cores == 1 ? 1.0 : 1000.0; };
  Script many = by_cores();
  many.name = "test.scaling.many";
  many.expects_on = [](const DeviceInfo&) { return 100.0; };
  add(alone, 1);
  add(many, 1);
  write(row_for(8, "tile=32,threads=2"));
  EXPECT_EQ(text(select_on(one_core)), "test.scaling.alone tile=1,threads=1");
  const Decision decision = chain().explain(what(), {.device = &one_core});
  EXPECT_THAT(decision.notes[static_cast<std::size_t>(Tier::kHeuristic)].reason,
              HasSubstr("tuned for 8 threads: the heuristic takes another kernel there"));
}

TEST_F(OtherCoresTest, HideNoTuning) {
  settings.policy = policy_of(Policy::kTune);
  add(by_cores());
  write(row_for(8, "tile=4,threads=2"));
  EXPECT_EQ(select_on(one_core).tier, Tier::kAutotune);
}

}  // namespace
}  // namespace attune::test
