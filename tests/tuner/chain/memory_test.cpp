// What memory holds, and which policies an entry of it is enough for.
#include <gmock/gmock.h>

#include "cache/raw_sqlite.hpp"
#include "chain/tiers.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// An entry of heuristic origin that stands for what was asked before it.
Choice heuristic_after(Tier last_asked) {
  Choice choice;
  choice.origin = Tier::kHeuristic;
  choice.tier = last_asked;
  return choice;
}

class ChainMemoryTest : public ChainTest {
 protected:
  static bool is_final(const Choice& entry, Policy policy) {
    return chain::is_final(entry, policy_of(policy));
  }
};

TEST_F(ChainMemoryTest, WhatIsNoHeuristicIsEnoughForEveryPolicy) {
  for (const Tier origin : {Tier::kPin, Tier::kPersistent, Tier::kAutotune}) {
    Choice choice;
    choice.origin = choice.tier = origin;
    for (const Policy policy : {Policy::kTune, Policy::kDb, Policy::kHeuristic, Policy::kStrict}) {
      EXPECT_TRUE(is_final(choice, policy));
    }
  }
}

TEST_F(ChainMemoryTest, AHeuristicIsEnoughWhereNothingMoreWouldBeAsked) {
  EXPECT_TRUE(is_final(heuristic_after(Tier::kMemory), Policy::kHeuristic));
  EXPECT_FALSE(is_final(heuristic_after(Tier::kMemory), Policy::kDb)) << "databases were not read";
  EXPECT_TRUE(is_final(heuristic_after(Tier::kPersistent), Policy::kDb));
  EXPECT_FALSE(is_final(heuristic_after(Tier::kPersistent), Policy::kTune)) << "nothing was tuned";
  EXPECT_TRUE(is_final(heuristic_after(Tier::kAutotune), Policy::kTune));
  EXPECT_FALSE(is_final(heuristic_after(Tier::kAutotune), Policy::kStrict));
  AutotunePolicy policy = policy_of(Policy::kDb);
  policy.allow_heuristics = false;
  EXPECT_FALSE(chain::is_final(heuristic_after(Tier::kAutotune), policy));
  policy = policy_of(Policy::kTune);
  policy.problem_budget = std::chrono::milliseconds(0);
  EXPECT_TRUE(chain::is_final(heuristic_after(Tier::kPersistent), policy)) << "no time to tune";
}

TEST_F(ChainMemoryTest, TuningTakesAPolicyThatTunesAndTimeForIt) {
  AutotunePolicy policy = policy_of(Policy::kTune);
  EXPECT_TRUE(chain::may_tune(policy));
  policy.problem_budget = std::chrono::milliseconds(0);
  EXPECT_FALSE(chain::may_tune(policy));
  policy = policy_of(Policy::kTune);
  policy.process_budget = std::chrono::milliseconds(0);
  EXPECT_FALSE(chain::may_tune(policy));
  policy = policy_of(Policy::kTune);
  policy.allow_autotune = false;
  EXPECT_FALSE(chain::may_tune(policy));
  policy = policy_of(Policy::kTune);
  policy.cache_miss_fallback = AutotunePolicy::Miss::kHeuristic;
  EXPECT_FALSE(chain::may_tune(policy));
}

/// Puts choices in the memory of a state of its own.
class RememberTest : public ChainMemoryTest {
 protected:
  RememberTest() {
    add_tiled();
    state = std::make_unique<chain::State>(registry, events, settings);
    with = request();
    key = selection_key<Scaling>(problem, with);
    problem_ = what();
  }
  Choice choice(Tier origin, Tier tier, const std::string& config) const {
    const ErasedKernel* kernel = registry.find_kernel("test.scaling.tiled")->kernel.get();
    return {kernel, kernel->parse(parse_params(config)), tier, origin, false};
  }
  void remember(const Choice& choice) {
    chain::Call call(*state, key, *problem_, with);
    chain::remember(*state, call, choice);
  }
  std::string remembered() const {
    const Choice* entry = state->cache.find(key);
    return entry == nullptr ? "" : config_text(*entry->kernel, entry->config);
  }

  std::unique_ptr<chain::State> state;
  attune::Request with;
  SelectionKey key;
  std::optional<ProblemRef> problem_;
};

TEST_F(RememberTest, AHeuristicReplacesOnlyOneThatKnewLess) {
  remember(choice(Tier::kHeuristic, Tier::kPersistent, "tile=1,threads=1"));
  remember(choice(Tier::kHeuristic, Tier::kMemory, "tile=2,threads=1"));
  EXPECT_EQ(remembered(), "tile=1,threads=1");
  remember(choice(Tier::kHeuristic, Tier::kPersistent, "tile=4,threads=1"));
  EXPECT_EQ(remembered(), "tile=1,threads=1") << "it says nothing new";
  remember(choice(Tier::kHeuristic, Tier::kAutotune, "tile=8,threads=1"));
  EXPECT_EQ(remembered(), "tile=8,threads=1");
}

TEST_F(RememberTest, AHeuristicDoesNotReplaceWhatWasTunedInBetween) {
  remember(choice(Tier::kAutotune, Tier::kAutotune, "tile=32,threads=1"));
  remember(choice(Tier::kHeuristic, Tier::kAutotune, "tile=2,threads=1"));
  EXPECT_EQ(remembered(), "tile=32,threads=1");
  remember(choice(Tier::kPersistent, Tier::kPersistent, "tile=4,threads=1"));
  EXPECT_EQ(remembered(), "tile=4,threads=1");
}

TEST_F(RememberTest, WhatIsTunedStandsBelowAPin) {
  pin("test.scaling.tiled", "tile=4");
  remember(choice(Tier::kAutotune, Tier::kAutotune, "tile=32,threads=1"));
  EXPECT_EQ(remembered(), "tile=4,threads=1");
  EXPECT_EQ(state->cache.find(key)->origin, Tier::kPin);
}

TEST_F(RememberTest, APinIsNotAskedWhereThePolicyReadsNoDatabases) {
  pin("test.scaling.tiled", "tile=4");
  AutotunePolicy policy = policy_of(Policy::kTune);
  policy.use_databases = false;
  const PolicyScope scope(policy);
  remember(choice(Tier::kAutotune, Tier::kAutotune, "tile=32,threads=1"));
  EXPECT_EQ(remembered(), "tile=32,threads=1");
}

using RowsTest = ChainMemoryTest;

TEST_F(RowsTest, ExplainNamesEachExactRowAfterTheChosenOneAndNoNeighbour) {
  settings.policy = policy_of(Policy::kDb);
  settings.store.site_paths = {folder.file("site.db")};
  settings.store.shipped_paths = {folder.file("shipped.db")};
  add_tiled();
  write(row("tile=8"));
  write(row("tile=4"), "site.db");
  write(row("tile=2"), "shipped.db");
  ConfigRow neighbour = row("tile=16");
  neighbour.key.problem = "rows=101 flavour=0";
  write(neighbour, "site.db");
  const Decision decision = chain().explain(what(), request());
  const std::string& reason = decision.notes.at(static_cast<std::size_t>(Tier::kPersistent)).reason;
  std::size_t named = 0;
  for (std::size_t at = 0; (at = reason.find("not used:", at)) != std::string::npos; ++at) ++named;
  EXPECT_EQ(named, 2U) << reason;
  EXPECT_THAT(reason, HasSubstr("a site row"));
  EXPECT_THAT(reason, HasSubstr("tile=4, comes later"));
  EXPECT_THAT(reason, HasSubstr("tile=2, comes later"));
  EXPECT_THAT(reason, Not(HasSubstr("rows=101")));
}

TEST_F(RowsTest, ARowWithoutTimesIsDescribedWithoutASpeedup) {
  settings.policy = policy_of(Policy::kDb);
  ConfigStore::Hit hit;
  hit.row = row("tile=8");
  EXPECT_THAT(chain::describe_row(hit), HasSubstr("2 times as fast as the default"));
  hit.row.median_us = hit.row.default_us;
  EXPECT_THAT(chain::describe_row(hit), HasSubstr(", as fast as the default"));
  hit.row.median_us = 0;
  EXPECT_THAT(chain::describe_row(hit), Not(HasSubstr("times")));
  hit.row.median_us = 10;
  hit.row.default_us = 0;
  EXPECT_THAT(chain::describe_row(hit), Not(HasSubstr("times")));
}

TEST_F(RowsTest, ExplainNamesEachRefusedRowOnce) {
  settings.policy = policy_of(Policy::kDb);
  settings.store.site_paths = {folder.file("site.db")};
  add_tiled();
  write(row("tile=8", "plugin.first"));
  write(row("tile=4", "plugin.second"), "site.db");
  const auto reason = [&] {
    restart();
    return chain()
        .explain(what(), request())
        .notes.at(static_cast<std::size_t>(Tier::kPersistent))
        .reason;
  };
  EXPECT_EQ(reason(),
            "2 rows were refused: no kernel 'plugin.first' is loaded; passed over: no kernel "
            "'plugin.second' is loaded");
  write(row("tile=2"), "site.db");
  EXPECT_THAT(reason(), HasSubstr("passed over: no kernel 'plugin.first' is loaded"));
}

TEST_F(RowsTest, ADatabaseWithDamagedRowsIsToldOfAndAGoodOneIsNot) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  write(row("tile=8"));
  listen();
  select();
  EXPECT_TRUE(seen_of(EventKind::kDatabase).empty());
  raw_sql(settings.store.user_path, "UPDATE decision SET checksum = checksum + 1");
  restart();
  select();
  ASSERT_EQ(seen_of(EventKind::kDatabase).size(), 1U);
  EXPECT_THAT(seen_of(EventKind::kDatabase)[0].reason, HasSubstr("1 bad row is left out"));
}

TEST_F(RowsTest, ExplainNamesRowsForOthersOnlyWhereNoneIsForThisOne) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  ConfigRow elsewhere = row("tile=16");
  elsewhere.key.device_class = "fake:2";
  write(elsewhere);
  const auto reason = [&] {
    restart();
    return chain()
        .explain(what(), request())
        .notes.at(static_cast<std::size_t>(Tier::kPersistent))
        .reason;
  };
  EXPECT_THAT(reason(), HasSubstr("for device class fake:2"));
  write(row("tile=8"));
  EXPECT_THAT(reason(), Not(HasSubstr("fake:2")));
  settings.policy = policy_of(Policy::kHeuristic);
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).erase(row_key());
  EXPECT_EQ(reason(), "the policy does not read databases");
}

}  // namespace
}  // namespace attune::test
