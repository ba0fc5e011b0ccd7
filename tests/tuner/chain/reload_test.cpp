// Databases that are replaced while a process runs: what it takes up, when, and what it keeps.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include "cache/child_process.hpp"
#include "chain/tiers.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTile8 = "test.scaling.tiled tile=8,threads=1";

class ReloadTest : public ChainTest {
 protected:
  ReloadTest() {
    settings.policy = policy_of(Policy::kDb);
    settings.store.site_paths = {folder.file("site.db")};
    add_tiled();
  }
  /// As an operator does: a new file, renamed over the old one.
  void replace_site(const std::string& config) {
    std::filesystem::remove(folder.file("next.db"));
    write(row(config), "next.db");
    std::filesystem::rename(folder.file("next.db"), folder.file("site.db"));
  }
  std::string chosen() { return text(select()); }
};

TEST_F(ReloadTest, TakesUpAReplacedFile) {
  replace_site("tile=16,threads=1");
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1");
  replace_site("tile=8,threads=1");
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1") << "memory answers until then";
  listen();
  chain().reload();
  ASSERT_EQ(seen_of(EventKind::kReloaded).size(), 1U);
  EXPECT_THAT(seen_of(EventKind::kReloaded)[0].reason, HasSubstr(folder.file("site.db")));
  EXPECT_EQ(select().tier, Tier::kPersistent);
  EXPECT_EQ(chosen(), kTile8);
  EXPECT_EQ(select().tier, Tier::kMemory);
  EXPECT_EQ(chain().counters().reloads, 1U);
}

TEST_F(ReloadTest, TakesUpAFileThatIsNewAndForgetsOneThatIsGone) {
  EXPECT_EQ(chosen(), kDefault);
  replace_site("tile=8,threads=1");
  chain().reload();
  EXPECT_EQ(chosen(), kTile8);
  std::filesystem::remove(folder.file("site.db"));
  chain().reload();
  EXPECT_EQ(chosen(), kDefault);
}

TEST_F(ReloadTest, TakesUpPinsThatAnotherProcessSet) {
  write(row("tile=16,threads=1"));
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1");
  ASSERT_TRUE(in_child([&] {
    pin("test.scaling.tiled", "tile=8,threads=1");
    return true;
  }));
  EXPECT_TRUE(chain().store().may_have_changed());
  chain().reload();
  EXPECT_EQ(select().tier, Tier::kPin);
  EXPECT_EQ(chosen(), kTile8);
}

TEST_F(ReloadTest, KeepsTheRowsOfAFileThatCannotBeReadAndTriesAgain) {
  replace_site("tile=8,threads=1");
  EXPECT_EQ(chosen(), kTile8);
  std::ofstream(folder.file("half.db")) << "SQLite format 3";  // as while it is copied
  std::filesystem::rename(folder.file("half.db"), folder.file("site.db"));
  chain().reload();
  EXPECT_EQ(chosen(), kTile8);
  EXPECT_THAT(logged, HasSubstr("its rows of before are used"));
  EXPECT_TRUE(chain().store().may_have_changed()) << "it is looked at again";
  replace_site("tile=16,threads=1");
  chain().reload();
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1");
  EXPECT_FALSE(chain().store().may_have_changed());
}

TEST_F(ReloadTest, WhatTheProcessStoresItselfIsNoChange) {
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(text(select()), kBest);
  EXPECT_FALSE(chain().store().may_have_changed());
  problem.rows = 7;
  select();
  EXPECT_FALSE(chain().store().may_have_changed());
  chain().reload();
  EXPECT_EQ(select().tier, Tier::kPersistent) << "it was stored";
}

TEST_F(ReloadTest, KeepsWhatWasTunedAndCouldNotBeStored) {
  settings.policy = policy_of(Policy::kTune);
  settings.store.read_only = true;
  EXPECT_EQ(text(select()), kBest);
  chain().reload();
  EXPECT_EQ(text(select_under(Policy::kDb)), kBest);
}

TEST_F(ReloadTest, OfTheSameFilesReadsNothingAndChangesNothing) {
  replace_site("tile=8,threads=1");
  select();
  EXPECT_TRUE(chain().store().reload().empty());
  write(row("tile=8,threads=1"), "site.db");  // written to, and the same rows
  EXPECT_TRUE(chain().store().may_have_changed());
  EXPECT_TRUE(chain().store().reload().empty());
  EXPECT_FALSE(chain().store().may_have_changed());
}

TEST_F(ReloadTest, AFileThatIsNamedTwiceIsReadOnce) {
  settings.store.site_paths = {folder.file("site.db"), folder.file("site.db")};
  replace_site("tile=8,threads=1");
  EXPECT_EQ(chosen(), kTile8);
  EXPECT_FALSE(chain().store().may_have_changed());
  write(row("tile=16,threads=1"), "user.db");
  chain().reload();
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1");
}

TEST_F(ReloadTest, ACallThatBeganBeforePutsNothingIntoMemory) {
  chain::State state(registry, events, settings);
  const Request with = request();
  const SelectionKey key = selection_key<Scaling>(problem, with);
  replace_site("tile=16,threads=1");
  chain::Call call(state, key, what(), with);
  const chain::Answer old = chain::ask_persistent(state, call);
  replace_site("tile=8,threads=1");
  chain::reload(state, chain::Reload::kWhenRowsDiffer);
  chain::remember(state, call, *old.choice);
  EXPECT_EQ(state.cache.find(key), nullptr);
}

TEST_F(ReloadTest, WithAnIntervalAReplacedFileIsTakenUpWithoutACall) {
  settings.reload_every = std::chrono::milliseconds(1);
  replace_site("tile=16,threads=1");
  EXPECT_EQ(chosen(), "test.scaling.tiled tile=16,threads=1");
  replace_site("tile=8,threads=1");
  while (chosen() != kTile8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(chain().counters().reloads, 1U);
}

TEST_F(ReloadTest, WhileOtherThreadsSelectEachGetsTheOldOrTheNewRow) {
  replace_site("tile=16,threads=1");
  chain();
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::string got = chosen();
        wrong += got == kTile8 || got == "test.scaling.tiled tile=16,threads=1" ? 0 : 1;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const bool even = i % 2 == 0;
    replace_site(even ? "tile=8,threads=1" : "tile=16,threads=1");
    chain().reload();
    EXPECT_EQ(chosen(), even ? kTile8 : "test.scaling.tiled tile=16,threads=1");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ReloadTest, StrictFreshRefusesAStaleRowThatStrictTakes) {
  ConfigRow old = row("tile=8,threads=1");
  old.library_version = "0.0.1";
  write(old, "site.db");
  EXPECT_EQ(text(select_under(Policy::kStrict)), kTile8);
  EXPECT_TRUE(select_under(Policy::kStrict).stale);
  try {
    select_under(Policy::kStrictFresh);
    FAIL() << "memory has it, and it is stale";
  } catch (const NotTuned& error) {
    EXPECT_THAT(error.what(), HasSubstr("is stale: tuned by attune 0.0.1"));
  }
  EXPECT_EQ(text(select_under(Policy::kDb)), kTile8) << "the refusal is not remembered for others";
  old.library_version = ATTUNE_VERSION;
  write(old, "site.db");
  chain().reload();
  EXPECT_EQ(text(select_under(Policy::kStrictFresh)), kTile8);
}

}  // namespace
}  // namespace attune::test
