// Policies by name, and where they hold.
#include <thread>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/tuner/policy.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

TEST(Policy, NamesRoundTrip) {
  for (const Policy policy :
       {Policy::kTune, Policy::kDb, Policy::kHeuristic, Policy::kStrict, Policy::kStrictFresh}) {
    EXPECT_EQ(parse_policy(to_string(policy)), policy);
  }
}

TEST(Policy, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  try {
    parse_policy("tunne");
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "policy 'tunne': expected tune, db, heuristic, strict or strict-fresh; did you mean 'tune'?"));
  }
}

TEST(Policy, EachNameSaysWhatAMissDoes) {
  using Miss = AutotunePolicy::Miss;
  EXPECT_EQ(AutotunePolicy::of(Policy::kTune), AutotunePolicy());
  const AutotunePolicy db = AutotunePolicy::of(Policy::kDb);
  EXPECT_EQ(db.cache_miss_fallback, Miss::kHeuristic);
  EXPECT_TRUE(db.use_databases);
  EXPECT_FALSE(db.allow_autotune);
  EXPECT_FALSE(db.persist_autotune);
  EXPECT_FALSE(AutotunePolicy::of(Policy::kHeuristic).use_databases);
  const AutotunePolicy strict = AutotunePolicy::of(Policy::kStrict);
  EXPECT_EQ(strict.cache_miss_fallback, Miss::kError);
  EXPECT_FALSE(strict.allow_heuristics);
  EXPECT_TRUE(strict.allow_stale);
  AutotunePolicy fresh = AutotunePolicy::of(Policy::kStrictFresh);
  EXPECT_FALSE(fresh.allow_stale);
  fresh.allow_stale = true;
  EXPECT_EQ(fresh, strict) << "but for stale rows";
}

class PolicyTest : public ChainTest {
 protected:
  PolicyTest() { add_tiled(); }
};

TEST_F(PolicyTest, AContextHasOneOfItsOwn) {
  settings.policy = policy_of(Policy::kDb);
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(chain().policy(), settings.policy);
  EXPECT_EQ(chain().counters().tunings, 0U);
}

TEST_F(PolicyTest, AScopeReplacesTheContextsUntilItEnds) {
  {
    const PolicyScope scope(Policy::kDb);
    EXPECT_EQ(select().tier, Tier::kHeuristic);
  }
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(PolicyTest, TheInnermostScopeCounts) {
  const PolicyScope outer(policy_of(Policy::kTune));
  {
    const PolicyScope inner(Policy::kStrict);
    EXPECT_THROW(select(), NotTuned);
  }
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(PolicyTest, AScopeIsOfItsThreadOnly) {
  const PolicyScope scope(Policy::kDb);
  Tier elsewhere = Tier::kOverride;
  std::thread([&] { elsewhere = select().tier; }).join();
  EXPECT_EQ(elsewhere, Tier::kAutotune);
}

TEST_F(PolicyTest, ScopesOfAThreadCanBePutInForceOnAnother) {
  CapturedScopes captured;
  {
    const PolicyScope scope(Policy::kDb);
    captured = CapturedScopes::of_this_thread();
  }
  Tier attached = Tier::kOverride;
  Tier detached = Tier::kOverride;
  std::thread([&] {
    {
      const auto scopes = captured.attach();
      attached = select().tier;
    }
    detached = select().tier;
  }).join();
  EXPECT_EQ(attached, Tier::kHeuristic);
  EXPECT_EQ(detached, Tier::kAutotune);
}

TEST_F(PolicyTest, AttachedScopesReplaceThoseOfTheThread) {
  const CapturedScopes none = CapturedScopes::of_this_thread();
  const PolicyScope strict(Policy::kStrict);
  {
    const auto scopes = none.attach();
    EXPECT_EQ(select_under(Policy::kDb).tier, Tier::kHeuristic);
  }
  EXPECT_THROW(select(), NotTuned);
}

TEST_F(PolicyTest, HeuristicReadsNoDatabase) {
  write(row("tile=8"));
  const Choice choice = select_under(Policy::kHeuristic);
  EXPECT_EQ(choice.tier, Tier::kHeuristic);
  EXPECT_EQ(text(choice), kDefault);
}

TEST_F(PolicyTest, HeuristicTakesWhatIsInMemory) {
  write(row("tile=8"));
  select_under(Policy::kDb);
  const Choice choice = select_under(Policy::kHeuristic);
  EXPECT_EQ(choice.tier, Tier::kMemory);
  EXPECT_EQ(choice.origin, Tier::kPersistent);
}

TEST_F(PolicyTest, StrictTakesARowAndNothingLess) {
  select_under(Policy::kHeuristic);  // a heuristic in memory does not count
  try {
    select_under(Policy::kStrict);
    FAIL() << "nothing was thrown";
  } catch (const NotTuned& error) {
    EXPECT_THAT(error.what(), HasSubstr("attune tune scaling rows=100 flavour=0"));
  }
  write(row("tile=8"));
  restart();
  EXPECT_EQ(select_under(Policy::kStrict).tier, Tier::kPersistent);
  EXPECT_EQ(select_under(Policy::kStrict).tier, Tier::kMemory);
}

TEST(PolicyOfNoKernels, StrictSaysUnsupportedWhereTuningCouldNotHelp) {
  World world;
  const FakeDevice device(world);
  Registry registry;
  registry.add_op<Scaling>();
  registry.add(scripted(world, Script{.refuses = [](const ScalingProblem&) { return "too odd"; }}),
               {.platform = "test"});
  EventBus events;
  ConfigSelectorChain chain(
      registry, events, {.store = {}, .policy = AutotunePolicy::of(Policy::kStrict), .tuner = {}});
  const ScalingProblem problem;
  const Request request{.device = &device};
  EXPECT_THROW(chain.select(selection_key<Scaling>(problem, request),
                            ProblemRef::of<Scaling>(problem), request),
               Unsupported);
}

TEST_F(PolicyTest, WithoutAutotuneAMissGoesOnToTheHeuristic) {
  settings.policy.allow_autotune = false;
  EXPECT_EQ(select().tier, Tier::kHeuristic);
}

TEST_F(PolicyTest, WithoutHeuristicsAMissThatCannotBeTunedIsAnError) {
  settings.policy.allow_autotune = false;
  settings.policy.allow_heuristics = false;
  EXPECT_THROW(select(), NotTuned);
}

TEST_F(PolicyTest, WithoutPersistenceWhatIsTunedStaysInMemory) {
  settings.policy.persist_autotune = false;
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(select().tier, Tier::kMemory);
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

}  // namespace
}  // namespace attune::test
