// The order of the tiers, and what each of them leaves behind.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ChainTiersTest : public ChainTest {};

/// The first column of the table of tiers in a page or a header's comment: the words at the
/// beginning of the lines that begin with `margin`, from the line below "tier" on.
std::vector<std::string> listed_tiers(const std::string& path, const std::string& margin) {
  std::ifstream file(std::string(ATTUNE_SOURCE_DIR "/") + path);
  std::vector<std::string> tiers;
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find("|--") != std::string::npos) continue;
    const bool is_row = line.starts_with(margin);
    if (in_table && !is_row) break;
    if (!is_row) continue;
    const std::string word =
        line.substr(margin.size(), line.find(' ', margin.size()) - margin.size());
    if (in_table && !word.empty()) tiers.push_back(word);
    in_table = in_table || word == "tier";
  }
  return tiers;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(std::string(ATTUNE_SOURCE_DIR "/") + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ChainTiersTest, AreThoseThatTheManualsList) {
  add_tiled();
  std::vector<std::string> asked;
  std::string arrows, quoted;
  for (const TierNote& note : chain().explain(what(), request()).notes) {
    asked.emplace_back(to_string(note.tier));
    arrows += asked.back() + " -> ";
    quoted += (quoted.empty() ? "\"" : ", \"") + asked.back() + '"';
  }
  EXPECT_THAT(text_of_file("README.md"), HasSubstr(arrows + "error"));
  EXPECT_THAT(text_of_file("core/include/attune/core/selection.hpp"), HasSubstr(quoted));
  EXPECT_EQ(listed_tiers("tuner/include/attune/tuner/config_selector_chain.hpp", "//   "), asked);
  EXPECT_EQ(listed_tiers("docs/architecture.md", "   | "), asked);
}

TEST_F(ChainTiersTest, EachTierAnswersWhenThoseAboveItDoNot) {
  add_tiled();
  write(row("tile=8"));
  pin("test.scaling.tiled", "tile=4");
  const NamedConfig named = NamedConfig::parse("tile=2,threads=2");
  Request with = request();
  with.config = &named;
  {
    const OverlayScope overlay("scaling", NamedConfig::parse("tile=2"));
    EXPECT_EQ(select(with).tier, Tier::kOverride);
    EXPECT_EQ(select().tier, Tier::kOverlay);
  }
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=4,threads=1");
  EXPECT_EQ(chain().counters().pins, 1U);
  const Choice again = select();
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_EQ(again.origin, Tier::kPin);

  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).unpin(row_key());
  restart();
  EXPECT_EQ(select().tier, Tier::kPersistent);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");

  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).erase(row_key());
  restart();
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(text(select()), kBest);

  problem.flavour = 1;
  EXPECT_EQ(select_under(Policy::kDb).tier, Tier::kHeuristic);
}

TEST_F(ChainTiersTest, AHeuristicIsRememberedButNeverWritten) {
  add_tiled();
  EXPECT_EQ(select_under(Policy::kDb).tier, Tier::kHeuristic);
  const Choice again = select_under(Policy::kDb);
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_EQ(again.origin, Tier::kHeuristic);
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

TEST_F(ChainTiersTest, AHeuristicInMemoryDoesNotHideALaterTuning) {
  add_tiled();
  select_under(Policy::kDb);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(text(select_under(Policy::kDb)), kBest);
}

TEST_F(ChainTiersTest, AHeuristicMadeWithoutDatabasesDoesNotHideARow) {
  add_tiled();
  write(row("tile=8"));
  EXPECT_EQ(select_under(Policy::kHeuristic).tier, Tier::kHeuristic);
  EXPECT_EQ(select_under(Policy::kHeuristic).tier, Tier::kMemory);
  EXPECT_EQ(select_under(Policy::kDb).tier, Tier::kPersistent);
}

TEST_F(ChainTiersTest, RepeatedHeuristicsDoNotGrowMemory) {
  add_tiled();
  for (int i = 0; i < 5; ++i) {
    select_under(Policy::kHeuristic);
    select_under(Policy::kDb);
  }
  EXPECT_EQ(chain().cache().size(), 1U);
  EXPECT_EQ(chain().counters().heuristics, 2U);  // one without databases, one after asking them
}

TEST_F(ChainTiersTest, APinThatDoesNotFitIsRefusedWithAWarning) {
  add({.misfits = [](const ScalingProblem&, const TiledConfig& c) {
    return c.tile == 4 ? "odd rows" : "";
  }});
  pin("test.scaling.tiled", "tile=4");
  listen();
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_THAT(logged, AllOf(HasSubstr("the pin for scaling rows=100 flavour=0 is refused"),
                            HasSubstr("odd rows")));
  ASSERT_FALSE(seen_of(EventKind::kDatabase).empty());
  EXPECT_THAT(seen_of(EventKind::kDatabase).back().reason, HasSubstr("odd rows"));
}

TEST_F(ChainTiersTest, APinStandsAboveARetune) {
  add_tiled();
  pin("test.scaling.tiled", "tile=4");
  EXPECT_EQ(text(chain().retune(what(), request())), kBest);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=4,threads=1");
}

TEST_F(ChainTiersTest, TheReferenceDoesNotCompete) {
  add_tiled();
  add(reference_script(), 100, kReferencePlatform);  // first by priority, and fastest by far
  EXPECT_EQ(text(select_under(Policy::kDb)), kDefault);
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ChainTiersTest, TheReferenceServesWhatNothingElseSupports) {
  add({.refuses = [](const ScalingProblem& p) { return p.flavour == 1 ? "plain only" : ""; }});
  add(reference_script(), -10, kReferencePlatform);
  problem.flavour = 1;
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "reference.scaling");
  EXPECT_EQ(select().kernel->name(), "reference.scaling");
}

/// Expects `base_us` and `row_us` a row.
Script expecting(const std::string& name, double base_us, double row_us) {
  return {.name = name, .expects = [=](const ScalingProblem& problem) {
            return base_us + row_us * static_cast<double>(problem.rows);
          }};
}

TEST_F(ChainTiersTest, OfOnePriorityTheKernelThatExpectsTheLeastIsTheDefault) {
  add(expecting("test.scaling.wide", 100, 1));
  add(expecting("test.scaling.narrow", 0, 2));
  problem.rows = 99;
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "test.scaling.narrow");
  problem.rows = 101;
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "test.scaling.wide");
}

TEST_F(ChainTiersTest, KernelsThatExpectAsMuchAsEachOtherStandInTheOrderOfRegistration) {
  add(expecting("test.scaling.first", 7, 0));
  add(expecting("test.scaling.second", 7, 0));
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "test.scaling.first");
}

TEST_F(ChainTiersTest, PriorityComesBeforeWhatAKernelExpects) {
  add(expecting("test.scaling.quick", 1, 0), 0);
  add(expecting("test.scaling.ranked", 1000, 0), 1);
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "test.scaling.ranked");
}

TEST_F(ChainTiersTest, AKernelThatCannotTellComesAfterThoseThatCan) {
  add({.name = "test.scaling.silent"});
  add(expecting("test.scaling.nan", std::nan(""), 0));
  add(expecting("test.scaling.slow", 1e9, 0));
  EXPECT_EQ(select_under(Policy::kDb).kernel->name(), "test.scaling.slow");
}

TEST_F(ChainTiersTest, ATuningMeasuresWhateverKernelsExpect) {
  add(expecting("test.scaling.modest", 2000, 0));
  Script boastful = expecting("test.scaling.boastful", 1, 0);
  boastful.cost_us = [](const TiledConfig&) { return 1500.0; };
  add(std::move(boastful));
  EXPECT_EQ(text(select()), "test.scaling.modest tile=32,threads=1");
  EXPECT_THAT(rows_on_disk().at(0).default_config, HasSubstr("test.scaling.boastful"));
}

TEST_F(ChainTiersTest, TheReferenceServesARequestForIt) {
  add_tiled();
  add(reference_script(), -10, kReferencePlatform);
  Request with = request();
  with.platform = kReferencePlatform;
  EXPECT_EQ(select(with).kernel->name(), "reference.scaling");
}

TEST_F(ChainTiersTest, AReferenceRowIsRefusedOnceSomethingElseSupportsTheProblem) {
  add_tiled();
  add(reference_script(), -10, kReferencePlatform);
  write(row("", "reference.scaling"));
  EXPECT_EQ(text(select_under(Policy::kDb)), kDefault);
  EXPECT_EQ(chain().counters().refused_rows, 1U);
}

TEST_F(ChainTiersTest, APlatformRequestedHasRowsOfItsOwn) {
  add_tiled();
  add({.name = "other.scaling", .cost_us = [](const TiledConfig&) { return 1.0; }}, 0, "other");
  EXPECT_EQ(select().kernel->name(), "other.scaling");
  Request with = request();
  with.platform = "test";
  EXPECT_EQ(text(select(with)), kBest);
  EXPECT_EQ(rows_on_disk().size(), 2U);
}

TEST_F(ChainTiersTest, UnsupportedListsEveryKernelWithItsReason) {
  add({.name = "test.scaling.odd",
       .refuses = [](const ScalingProblem&) { return "rows are even"; }});
  add({.name = "test.scaling.large",
       .refuses = [](const ScalingProblem&) { return "fewer than 1000 rows"; }});
  try {
    select();
    FAIL() << "nothing was thrown";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no kernel takes scaling rows=100 flavour=0:"),
                                    HasSubstr("\n  test.scaling.odd: rows are even"),
                                    HasSubstr("\n  test.scaling.large: fewer than 1000 rows")));
  }
}

TEST_F(ChainTiersTest, UnsupportedSaysWhenNoKernelIsRegisteredForTheDevice) {
  registry.add(scripted(world, Script{}), {.platform = "test", .backend = "elsewhere"});
  try {
    select();
    FAIL() << "nothing was thrown";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no kernel of scaling is registered for platform auto on fake:0"));
  }
}

TEST_F(ChainTiersTest, AnUnknownPlatformIsUnavailable) {
  add_tiled();
  Request with = request();
  with.platform = "tset";
  EXPECT_THROW(select(with), Unavailable);
}

TEST_F(ChainTiersTest, ARequestWithoutADeviceIsAnError) {
  add_tiled();
  EXPECT_THROW(select(Request{}), InvalidArgument);
}

TEST_F(ChainTiersTest, ForgetDropsMemoryAndRow) {
  add_tiled();
  select();
  ASSERT_EQ(rows_on_disk().size(), 1U);
  chain().forget(what(), request());
  EXPECT_TRUE(rows_on_disk().empty());
  EXPECT_EQ(select_under(Policy::kDb).tier, Tier::kHeuristic);
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

}  // namespace
}  // namespace attune::test
