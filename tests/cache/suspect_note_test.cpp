// What was running when a process or the machine ended is known afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>

#include <attune/cache/config_store.hpp>

#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

QuarantineRow candidate() {
  QuarantineRow row;
  row.op = "scaling";
  row.device_class = "fake:1";
  row.kernel = "test.scaling";
  row.kernel_version = 3;
  row.config = "tile=4";
  row.problem = "rows=100";
  return row;
}

class SuspectNoteTest : public testing::Test {
 protected:
  /// A process that notes a candidate, may clear the note, and ends without tidying up.
  void run_and_die(AtRisk at_risk, bool clears = false) const {
    const pid_t child = fork();
    if (child == 0) {
      auto* const note = new SuspectNote(database, at_risk);
      note->runs(candidate());
      if (clears) note->clear();
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }
  std::vector<std::filesystem::path> notes() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().string().find(".running.") != std::string::npos) found.push_back(entry);
    }
    return found;
  }
  std::vector<QuarantineRow> take() const {
    std::vector<QuarantineRow> rows;
    take_suspects(database, [&](const QuarantineRow& row) { rows.push_back(row); });
    return rows;
  }
  /// As if the machine had been started again since.
  void change_boot() const {
    for (const auto& path : notes()) {
      std::ostringstream text;
      std::ifstream file(path);
      std::string line;
      for (int number = 0; std::getline(file, line); ++number) {
        text << (number == 3 ? "another-boot " + line.substr(line.find(' ') + 1) : line) << '\n';
      }
      std::ofstream(path) << text.str();
    }
  }

  TemporaryFolder folder;
  std::string database = folder.file("user.db");
};

TEST_F(SuspectNoteTest, ACandidateThatEndedItsProcessIsASuspect) {
  run_and_die(AtRisk::kProcess);
  const auto suspects = take();
  ASSERT_EQ(suspects.size(), 1U);
  EXPECT_EQ(suspects[0].kernel, "test.scaling");
  EXPECT_EQ(suspects[0].kernel_version, 3);
  EXPECT_EQ(suspects[0].config, "tile=4");
  EXPECT_EQ(suspects[0].problem, "rows=100");
  EXPECT_THAT(suspects[0].reason, HasSubstr("suspect: its process ended while it ran"));
  EXPECT_THAT(notes(), IsEmpty());
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(SuspectNoteTest, OneThatWasDoneIsNot) {
  run_and_die(AtRisk::kProcess, true);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(SuspectNoteTest, OneInAnotherProcessIsNotBlamedForTheEndOfThisOne) {
  run_and_die(AtRisk::kMachine);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(SuspectNoteTest, OneThatRanWhenTheMachineWentDownIsASuspectWhereverItRan) {
  run_and_die(AtRisk::kMachine);
  change_boot();
  const auto suspects = take();
  ASSERT_EQ(suspects.size(), 1U);
  EXPECT_THAT(suspects[0].reason, HasSubstr("the machine went down while it ran"));
}

TEST_F(SuspectNoteTest, WhatStillRunsIsLeftAlone) {
  SuspectNote note(database, AtRisk::kProcess);
  note.runs(candidate());
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_EQ(notes().size(), 1U);
}

TEST_F(SuspectNoteTest, ANoteGoesWithItsOwner) {
  { SuspectNote(database, AtRisk::kProcess).runs(candidate()); }
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(SuspectNoteTest, WhereNothingCanBeWrittenNothingIsNoted) {
  SuspectNote("/nonexistent/user.db", AtRisk::kMachine).runs(candidate());
  SuspectNote("", AtRisk::kProcess).runs(candidate());
  take_suspects("/nonexistent/user.db", [](const QuarantineRow&) { FAIL(); });
}

TEST_F(SuspectNoteTest, ADamagedNoteBlamesNobody) {
  run_and_die(AtRisk::kProcess);
  std::filesystem::resize_file(notes().at(0), 40);
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(SuspectNoteTest, TheStoreQuarantinesSuspectsForAWeek) {
  { ConfigDatabase(database, ConfigDatabase::Mode::kReadWrite); }
  run_and_die(AtRisk::kProcess);
  const QuarantineRow row = candidate();
  const RowKey key{row.op, row.device_class, "auto", row.problem};
  const auto why = [&] {
    ConfigStore store({.user_path = database, .site_paths = {}, .shipped_paths = {}});
    return store.quarantined(key, row.kernel, row.kernel_version, row.config).value_or("");
  };
  EXPECT_THAT(why(), HasSubstr("suspect: "));
  EXPECT_THAT(why(), HasSubstr("suspect: "));  // it is in the database by now

  QuarantineRow past = row;
  past.reason = "suspect: its process ended while it ran";
  past.created = std::time(nullptr) - kSuspicionSeconds - 10;
  ConfigDatabase(database, ConfigDatabase::Mode::kReadWrite).quarantine(past);
  EXPECT_EQ(why(), "");
  past.reason = "wrong: NaN";
  ConfigDatabase(database, ConfigDatabase::Mode::kReadWrite).quarantine(past);
  EXPECT_EQ(why(), "wrong: NaN");
}

}  // namespace
}  // namespace attune::test
