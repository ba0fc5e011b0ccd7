// Events: every decision with its reason, in the order of deciding.
#include <algorithm>

#include <gmock/gmock.h>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class ChainEventsTest : public ChainTest {
 protected:
  std::vector<EventKind> order() const {
    std::vector<EventKind> kinds;
    for (const SeenEvent& event : seen) {
      if (event.kind != EventKind::kDatabase && (kinds.empty() || kinds.back() != event.kind))
        kinds.push_back(event.kind);
    }
    return kinds;
  }
};

TEST_F(ChainEventsTest, OfATuning) {
  add_tiled();
  listen();
  select();
  EXPECT_THAT(order(), ElementsAre(EventKind::kTuneStarted, EventKind::kTrial,
                                   EventKind::kTuneFinished, EventKind::kSelected));
  EXPECT_EQ(seen_of(EventKind::kTuneStarted)[0].candidates, 12);
  EXPECT_EQ(seen_of(EventKind::kTrial).size(), 12U);
  const SeenEvent finished = seen_of(EventKind::kTuneFinished)[0];
  EXPECT_EQ(finished.kernel, "test.scaling.tiled");
  EXPECT_EQ(finished.config, "tile=32,threads=1");
  EXPECT_EQ(finished.reason, "complete");
  EXPECT_NEAR(finished.median_us, 32.25, 0.01);
  EXPECT_NEAR(finished.default_us, 1001, 0.01);
  const SeenEvent selected = seen_of(EventKind::kSelected)[0];
  EXPECT_EQ(selected.tier, Tier::kAutotune);
  EXPECT_EQ(selected.op, "scaling");
  EXPECT_EQ(selected.problem, "rows=100 flavour=0");
  EXPECT_THAT(selected.reason, HasSubstr("tuned: 32.25 us, the default 1001 us"));
}

TEST_F(ChainEventsTest, OfTrialsSayOutcomeAndReason) {
  add({.misfits = [](const ScalingProblem&, const TiledConfig&) { return ""; },
       .compute =
           [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
             for (std::int64_t i = 0; i < p.rows; ++i)
               a.y[i] = (c.tile == 32 ? 3.0F : 2.0F) * a.x[i];
           }});
  add(reference_script(), -10, kReferencePlatform);
  listen();
  select();
  for (const SeenEvent& event : seen_of(EventKind::kTrial)) {
    if (event.config == "tile=32,threads=1") {
      EXPECT_THAT(event.reason, StartsWith("wrong: y: relative error"));
      EXPECT_EQ(event.median_us, 0);
    } else if (event.config == "tile=16,threads=1") {
      EXPECT_EQ(event.reason, "ok");
      EXPECT_GT(event.median_us, 0);
    }
  }
}

TEST_F(ChainEventsTest, OfAMemoryHitHasNoTexts) {
  add_tiled();
  select();
  listen();
  select();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].kind, EventKind::kSelected);
  EXPECT_EQ(seen[0].tier, Tier::kMemory);
  EXPECT_EQ(seen[0].kernel, "test.scaling.tiled");
  EXPECT_EQ(seen[0].reason, "autotune");
  EXPECT_EQ(seen[0].problem, "");
  EXPECT_EQ(seen[0].config, "");
}

TEST_F(ChainEventsTest, NameTheOpAsTheCallerDid) {
  add_tiled();
  listen();
  Request with = request();
  with.called_as = "doubling";
  select(with);
  select(with);
  for (const SeenEvent& event : seen)
    EXPECT_TRUE(event.op == "doubling" || event.kind == EventKind::kDatabase);
}

TEST_F(ChainEventsTest, OneSelectedForEveryCall) {
  add_tiled();
  listen();
  const NamedConfig named = NamedConfig::parse("tile=2");
  Request with = request();
  with.config = &named;
  select(with);
  select_under(Policy::kDb);
  select();
  select();
  std::vector<Tier> tiers;
  for (const SeenEvent& event : seen_of(EventKind::kSelected)) tiers.push_back(event.tier);
  EXPECT_THAT(tiers,
              ElementsAre(Tier::kOverride, Tier::kHeuristic, Tier::kAutotune, Tier::kMemory));
}

TEST_F(ChainEventsTest, OfAHeuristicSaysWhyNothingWasTuned) {
  add_tiled();
  listen();
  select_under(Policy::kDb);
  EXPECT_THAT(seen_of(EventKind::kSelected)[0].reason, HasSubstr("policy db does not tune"));
}

}  // namespace
}  // namespace attune::test
