// A limit of the scratch memory bounds what selection picks, and is no part of a key. The kernels
// of these tests need 16 bytes times their tile.
#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

class WorkspaceLimitTest : public ChainTest {
 protected:
  Request limited(std::size_t bytes) const {
    Request with = request();
    with.workspace_limit = bytes;
    return with;
  }
  Choice select_limited(std::size_t bytes) { return select(limited(bytes)); }
  std::string reason_of_tier(Tier tier, const Request& with) {
    for (const TierNote& note : chain().explain(what(), with).notes) {
      if (note.tier == tier) return note.reason;
    }
    return "";
  }
};

TEST_F(WorkspaceLimitTest, APassedOverRowSaysWhatItNeeds) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  write(row("tile=32,threads=1"));
  listen();
  const Choice choice = select_limited(100);
  EXPECT_EQ(choice.tier, Tier::kHeuristic);
  EXPECT_EQ(text(choice), kDefault);
  const std::string why = "needs 512 bytes of workspace, the limit is at most 100";
  EXPECT_THAT(reason_of_tier(Tier::kPersistent, limited(100)), HasSubstr(why));
  ASSERT_EQ(seen_of(EventKind::kDatabase).size(), 1U);
  EXPECT_THAT(seen_of(EventKind::kDatabase)[0].reason, HasSubstr(why));
}

TEST_F(WorkspaceLimitTest, IsNoPartOfTheKey) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  write(row("tile=32,threads=1"));
  EXPECT_EQ(text(select_limited(512)), kBest);
  EXPECT_EQ(select_limited(512).tier, Tier::kMemory);
  EXPECT_EQ(select().tier, Tier::kMemory) << "under the limit it was as without";
  EXPECT_EQ(text(select_limited(511)), kDefault);
  EXPECT_EQ(text(select()), kBest) << "what was chosen for a limit serves no other call";
  EXPECT_EQ(chain().cache().size(), 2U);
}

TEST_F(WorkspaceLimitTest, WhatServesALimitIsRemembered) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  write(row("tile=32,threads=1"));
  select_limited(100);
  const Choice again = select_limited(100);
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_EQ(text(again), kDefault);
}

TEST_F(WorkspaceLimitTest, TheHeuristicTakesTheNearestConfigThatFits) {
  settings.policy = policy_of(Policy::kHeuristic);
  add({.heuristic = {.tile = 32, .threads = 2}});
  EXPECT_EQ(text(select_limited(512)), "test.scaling.tiled tile=32,threads=2");
  EXPECT_EQ(text(select_limited(130)), "test.scaling.tiled tile=8,threads=2");
  EXPECT_THAT(reason_of_tier(Tier::kHeuristic, limited(130)),
              HasSubstr("tile=32,threads=2 needs 512 bytes of workspace"));
}

TEST_F(WorkspaceLimitTest, TheErrorNamesTheLeastThatWouldDo) {
  add({.heuristic = {.tile = 32}});
  for (const Policy policy : {Policy::kDb, Policy::kHeuristic}) {
    const PolicyScope scope(policy_of(policy));
    try {
      select_limited(1);
      FAIL() << "nothing was thrown";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), HasSubstr("keeps to a workspace of 1 byte:"));
      EXPECT_THAT(error.what(), HasSubstr("the least that would do is 16 bytes"));
    }
  }
}

TEST_F(WorkspaceLimitTest, AnOverrideAboveItIsAnError) {
  add_tiled();
  const NamedConfig config = NamedConfig::parse("tile=32");
  Request with = limited(100);
  with.config = &config;
  EXPECT_THROW(select(with), InvalidArgument);
}

TEST_F(WorkspaceLimitTest, APinAboveItIsPassedOver) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  pin("test.scaling.tiled", "tile=32,threads=1");
  EXPECT_EQ(text(select_limited(100)), kDefault);
  EXPECT_THAT(logged, HasSubstr("the pin for scaling"));
  EXPECT_EQ(select().tier, Tier::kPin);
}

TEST_F(WorkspaceLimitTest, ATuningIsOfTheProblemAndHappensOnce) {
  add_tiled();
  EXPECT_EQ(text(select_limited(100)), kDefault);
  EXPECT_EQ(chain().counters().tunings, 1U);
  ASSERT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(rows_on_disk()[0].key, row_key());
  EXPECT_EQ(rows_on_disk()[0].config, "tile=32,threads=1");
  EXPECT_EQ(select_limited(100).tier, Tier::kMemory);
  EXPECT_EQ(select_limited(64).tier, Tier::kHeuristic);
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(chain().counters().tunings, 1U);
  restart();
  EXPECT_EQ(text(select_limited(100)), kDefault);
  EXPECT_EQ(chain().counters().tunings, 0U) << "the row is there";
}

TEST_F(WorkspaceLimitTest, AsAConstraintItIsTunedUnderAndPartOfTheKey) {
  add_tiled();
  Request with = request();
  with.constraints.workspace_bytes = 130;
  EXPECT_EQ(text(select(with)), "test.scaling.tiled tile=8,threads=1");
  ASSERT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(rows_on_disk()[0].key, row_key("auto;workspace<=130"));
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(rows_on_disk().size(), 2U);
  restart();
  EXPECT_EQ(select(with).tier, Tier::kPersistent);
  EXPECT_EQ(text(select(with)), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(chain().counters().tunings, 0U);
}

}  // namespace
}  // namespace attune::test
