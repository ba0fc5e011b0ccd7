// Overrides and overlays: configs given by the caller.
#include <thread>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OverrideTest : public ChainTest {
 protected:
  OverrideTest() {
    add({.name = "test.scaling.tiled",
         .misfits = [](const ScalingProblem&,
                       const TiledConfig& c) { return c.tile == 16 ? "never fits" : ""; }},
        5);
    add({.name = "other.scaling"}, 0, "other");
    add(reference_script(), -5, kReferencePlatform);
  }

  Choice select_with(const std::string& config) {
    const NamedConfig named = NamedConfig::parse(config);
    Request with = request();
    with.config = &named;
    return select(with);
  }
  std::string refusal(const std::string& config) {
    try {
      select_with(config);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

TEST_F(OverrideTest, IsHonouredUnderEveryPolicy) {
  for (const Policy policy : {Policy::kTune, Policy::kDb, Policy::kHeuristic, Policy::kStrict}) {
    const PolicyScope scope(policy);
    const Choice choice = select_with("tile=2,threads=2");
    EXPECT_EQ(choice.tier, Tier::kOverride);
    EXPECT_EQ(text(choice), "test.scaling.tiled tile=2,threads=2");
  }
  EXPECT_EQ(chain().counters().overrides, 4U);
}

TEST_F(OverrideTest, IsNeverStored) {
  select_with("tile=2");
  EXPECT_EQ(chain().cache().size(), 0U);
  EXPECT_TRUE(rows_on_disk().empty());
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(text(select_with("tile=2")), "test.scaling.tiled tile=2,threads=1");
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(OverrideTest, OutranksMemoryRowsAndPins) {
  write(row("tile=8"));
  pin("test.scaling.tiled", "tile=4");
  select();
  EXPECT_EQ(select_with("tile=2").tier, Tier::kOverride);
}

TEST_F(OverrideTest, LeavesWhatItDoesNotNameToTheHeuristic) {
  add({.name = "test.scaling.threaded", .heuristic = {.tile = 4, .threads = 2}});
  EXPECT_EQ(text(select_with("kernel=test.scaling.threaded,tile=8")),
            "test.scaling.threaded tile=8,threads=2");
  EXPECT_EQ(text(select_with("kernel=test.scaling.threaded")),
            "test.scaling.threaded tile=4,threads=2");
}

TEST_F(OverrideTest, MayNameAKernel) {
  EXPECT_EQ(text(select_with("kernel=other.scaling,tile=2")), "other.scaling tile=2,threads=1");
}

TEST_F(OverrideTest, ThatDoesNotFitIsAnError) {
  EXPECT_THAT(refusal("kernel=test.scaling.tiled,tile=16"),
              AllOf(HasSubstr("config: "), HasSubstr("tile=16"), HasSubstr("never fits")));
}

TEST_F(OverrideTest, OfTheFirstKernelThatTakesIt) {
  EXPECT_EQ(text(select_with("tile=16")), "other.scaling tile=16,threads=1");
}

TEST_F(OverrideTest, ThatNoKernelTakesIsAnErrorWithEachReason) {
  EXPECT_THAT(
      refusal("tile=3"),
      AllOf(HasSubstr("config: "), HasSubstr("test.scaling.tiled: config: tile=3"),
            HasSubstr("other.scaling: config: tile=3"), HasSubstr("expected one of 1, 2, 4")));
}

TEST_F(OverrideTest, WithAnUnknownParameterIsAnError) {
  EXPECT_THAT(refusal("tiles=4"), HasSubstr("no parameter 'tiles'; did you mean 'tile'?"));
}

TEST_F(OverrideTest, OfAnUnknownKernelIsAnErrorThatSuggests) {
  EXPECT_THAT(refusal("kernel=other.scalin,tile=2"), HasSubstr("did you mean 'other.scaling'?"));
}

TEST_F(OverrideTest, OfAKernelOfAnotherPlatformThanAskedForIsAnError) {
  const NamedConfig named = NamedConfig::parse("kernel=other.scaling,tile=2");
  Request with = request();
  with.config = &named;
  with.platform = "test";
  try {
    select(with);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'other.scaling' has platform other"));
  }
}

TEST_F(OverrideTest, OfAKernelOfAnotherOpIsAnError) {
  registry.add_op<ScalingBackward>();
  registry.add(scripted(world, ScriptOf<TiledConfigOf<ScalingBackward>>{.name = "test.backward"}),
               {.platform = "test"});
  EXPECT_THAT(refusal("kernel=test.backward"),
              HasSubstr("'test.backward' computes scaling.backward, not scaling"));
}

TEST_F(OverrideTest, MayBeTheReferenceAlthoughItDoesNotCompete) {
  EXPECT_EQ(select_with("kernel=reference.scaling").kernel->name(), "reference.scaling");
}

using OverlayTest = OverrideTest;

TEST_F(OverlayTest, HoldsForItsOpUntilItEndsAndIsNeverStored) {
  {
    const OverlayScope scope("scaling", NamedConfig::parse("tile=2"));
    EXPECT_EQ(select().tier, Tier::kOverlay);
    EXPECT_EQ(text(select()), "test.scaling.tiled tile=2,threads=1");
  }
  EXPECT_EQ(chain().cache().size(), 0U);
  EXPECT_TRUE(rows_on_disk().empty());
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(chain().counters().overlays, 2U);
}

TEST_F(OverlayTest, HidesWhatIsInMemory) {
  select();
  const OverlayScope scope("scaling", NamedConfig::parse("tile=2"));
  EXPECT_EQ(select().tier, Tier::kOverlay);
}

TEST_F(OverlayTest, TheInnermostThatFitsCounts) {
  const OverlayScope outer("scaling", NamedConfig::parse("tile=2"));
  {
    const OverlayScope inner("scaling", NamedConfig::parse("tile=4"));
    EXPECT_EQ(text(select()), "test.scaling.tiled tile=4,threads=1");
    const OverlayScope misfit("scaling", NamedConfig::parse("kernel=test.scaling.tiled,tile=16"));
    EXPECT_EQ(text(select()), "test.scaling.tiled tile=4,threads=1");
  }
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=2,threads=1");
}

TEST_F(OverlayTest, ThatDoesNotFitIsAsIfThereWereNone) {
  const OverlayScope scope("scaling", NamedConfig::parse("kernel=test.scaling.tiled,tile=16"));
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(select().tier, Tier::kMemory);
}

TEST_F(OverlayTest, OfAnAliasHoldsForTheOpItLowersTo) {
  const OverlayScope scope("doubling", NamedConfig::parse("tile=2"));
  EXPECT_EQ(select().tier, Tier::kOverlay);
}

TEST_F(OverlayTest, OfAnotherOpIsNotAsked) {
  const OverlayScope scope("scaling.backward", NamedConfig::parse("tile=2"));
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(OverlayTest, WithAProblemHoldsForThatProblemOnly) {
  const OverlayScope scope("scaling", NamedConfig::parse("tile=2"), "rows=100");
  EXPECT_EQ(select().tier, Tier::kOverlay);
  problem.rows = 101;
  EXPECT_NE(select().tier, Tier::kOverlay);
}

TEST_F(OverlayTest, WithATextThatIsNoProblemIsAnError) {
  EXPECT_THROW(OverlayScope("scaling", NamedConfig::parse("tile=2"), "rows"), InvalidArgument);
}

TEST_F(OverlayTest, LosesToAnOverride) {
  const OverlayScope scope("scaling", NamedConfig::parse("tile=2"));
  EXPECT_EQ(text(select_with("tile=4")), "test.scaling.tiled tile=4,threads=1");
}

TEST_F(OverlayTest, ReachesAnotherThreadWhenCaptured) {
  const OverlayScope scope("scaling", NamedConfig::parse("tile=2"));
  const CapturedScopes captured = CapturedScopes::of_this_thread();
  Tier without = Tier::kOverride;
  Tier with = Tier::kOverride;
  std::thread([&] {
    without = select_under(Policy::kDb).tier;
    const auto scopes = captured.attach();
    with = select().tier;
  }).join();
  EXPECT_EQ(without, Tier::kHeuristic);
  EXPECT_EQ(with, Tier::kOverlay);
}

}  // namespace
}  // namespace attune::test
