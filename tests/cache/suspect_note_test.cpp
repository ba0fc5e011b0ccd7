// What was running when a process or the machine ended is known afterwards, and nothing that only
// looks like a note of it has a say.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>

#include <attune/cache/config_store.hpp>
#include <attune/core/log.hpp>

#include "database/process_identity.hpp"
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
  /// What the names of this process's notes begin with; a number follows.
  std::string beginning_of_notes() const {
    const SuspectNote note(database, AtRisk::kProcess);
    const std::string name = notes().at(0).string();
    return name.substr(0, name.rfind('.') + 1);
  }
  std::vector<QuarantineRow> take() const {
    std::vector<QuarantineRow> rows;
    take_suspects(database, [&](const QuarantineRow& row) { rows.push_back(row); });
    return rows;
  }
  /// Another text in the place of a line of the note, counted from 0.
  void edit(int number, const std::string& to) const {
    std::ostringstream text;
    std::ifstream file(notes().at(0));
    std::string line;
    for (int i = 0; std::getline(file, line); ++i) text << (i == number ? to : line) << '\n';
    std::ofstream(notes().at(0)) << text.str();
  }
  std::string line(int number) const {
    std::ifstream file(notes().at(0));
    std::string line;
    for (int i = 0; i <= number; ++i) std::getline(file, line);
    return line;
  }
  /// As if the machine had been started again since.
  void change_boot() const {
    const std::string boot = line(kBoot);
    edit(kBoot, "another-boot " + boot.substr(boot.find(' ') + 1));
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static constexpr int kPid = 1, kBoot = 3, kAtRisk = 5, kOp = 6, kKernel = 8, kVersion = 9,
                       kConfig = 10, kProblem = 11;
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

TEST_F(SuspectNoteTest, OnlyARegularFileIsANote) {
  const auto name = [&](int n) { return str(database, ".running.1.", n); };
  ASSERT_EQ(mkfifo(name(0).c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", name(1));
  std::filesystem::create_directory(name(2));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, name(3).c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(socket);
  std::ofstream(name(4)) << "";
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_EQ(notes().size(), 5U) << "what is not attune's is left where it is";

  run_and_die(AtRisk::kProcess);
  EXPECT_EQ(take().size(), 1U) << "the note among them counts";
  EXPECT_EQ(notes().size(), 5U);
}

TEST_F(SuspectNoteTest, ALinkToANoteIsNone) {
  run_and_die(AtRisk::kProcess);
  const std::string elsewhere = folder.file("elsewhere");
  const std::filesystem::path note = notes().at(0);
  std::filesystem::rename(note, elsewhere);
  std::filesystem::create_symlink(elsewhere, note);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_EQ(notes().size(), 1U);
}

TEST_F(SuspectNoteTest, ANoteOfMoreThan16KiBIsNone) {
  run_and_die(AtRisk::kProcess);
  const auto fill = [&](std::size_t size) {
    const std::string begin = text_of(notes().at(0)).substr(0, 1000);
    std::ofstream(notes().at(0)) << begin << std::string(size - begin.size(), '\n');
  };
  fill(16385);
  EXPECT_THAT(take(), IsEmpty());
  fill(16384);
  EXPECT_EQ(take().size(), 1U) << "what a killed process left below its note does no harm";
}

TEST_F(SuspectNoteTest, OneThatNamesWhatCouldNotBeQuarantinedIsNone) {
  const std::vector<std::pair<int, std::string>> forgeries = {
      {kOp, ""},
      {kOp, std::string(129, 'x')},
      {kKernel, ""},
      {kKernel, "\x1b[2Jred"},
      {kConfig, "tile=\x9b"},
      {kConfig, "tile=\xc2\x9b"},
      {kProblem, "rows=\a"},
      {kProblem, std::string(2049, 'x')},
      {kVersion, "-1"},
      {kVersion, ""},
      {kPid, "0"},
      {kPid, "-1"},
      {kPid, "4294967297"},
      {kPid, "9223372036854775807"},
      {kBoot, "another\tboot"},
      {kAtRisk, "2"},
      {kAtRisk, "-1"},
  };
  for (const auto& [number, text] : forgeries) {
    run_and_die(AtRisk::kProcess);
    edit(number, text);
    EXPECT_THAT(take(), IsEmpty()) << number << ' ' << text;
    ASSERT_EQ(notes().size(), 1U) << number << ' ' << text;
    std::filesystem::remove(notes().at(0));
  }
}

TEST_F(SuspectNoteTest, OneOfSomebodyElseCountsWhenTheDatabaseIsTheirs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kSomebody = 12345;
  { ConfigDatabase(database, ConfigDatabase::Mode::kReadWrite); }
  run_and_die(AtRisk::kProcess);
  ASSERT_EQ(chown(notes().at(0).c_str(), kSomebody, kSomebody), 0);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_EQ(notes().size(), 1U);
  ASSERT_EQ(chown(database.c_str(), kSomebody, kSomebody), 0);
  EXPECT_EQ(take().size(), 1U);
}

TEST_F(SuspectNoteTest, ALookIsAtAThousandNotesAtMost) {
  run_and_die(AtRisk::kProcess);
  const std::string note = text_of(notes().at(0));
  for (int i = 0; i < 1200; ++i) std::ofstream(str(database, ".running.1.", i)) << note;
  EXPECT_EQ(take().size(), 1000U);
  EXPECT_EQ(take().size(), 201U) << "the next look goes on";
}

TEST_F(SuspectNoteTest, ANameSaysTheHostAndOneWithoutItCountsAsWell) {
  run_and_die(AtRisk::kProcess);
  const std::filesystem::path note = notes().at(0);
  EXPECT_EQ(note.string().find(".running." + std::to_string(getpid())), std::string::npos);
  std::filesystem::copy(note, database + ".running.17.0");
  std::filesystem::copy(note, database + ".running.some-host.17.0");
  std::filesystem::copy(note, database + ".running.some host.17.0");
  std::filesystem::copy(note, database + ".running.some.host.17.0");
  EXPECT_EQ(take().size(), 3U);
  EXPECT_EQ(notes().size(), 2U) << "other names are left as they are";
}

TEST_F(SuspectNoteTest, WhatIsNoNoteIsSaidOnceAndPrintably) {
  std::ofstream(database + ".running.1.0") << "\x1b[31m";
  std::ofstream(database + ".running.1.0\x1b[31m") << "no note";
  std::vector<std::string> lines;
  const LogLevel before = log_level();
  set_log_level(LogLevel::kDebug);
  set_log_sink([&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kDebug);
    lines.emplace_back(line);
  });
  take();
  take();
  set_log_sink({});
  set_log_level(before);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos);
  EXPECT_THAT(lines[0], HasSubstr("user.db.running.1.0: "));
}

TEST_F(SuspectNoteTest, ANoteIsAFileThatWasNotThereBefore) {
  { SuspectNote(database, AtRisk::kProcess).runs(candidate()); }
  const std::string precious = folder.file("precious");
  std::ofstream(precious) << "precious";
  const std::string beginning = beginning_of_notes();
  for (int n = 0; n < 50; ++n) {
    const std::string name = str(beginning, n);
    if (n % 2 == 0) {
      std::filesystem::create_symlink(precious, name);
    } else {
      std::ofstream(name) << "precious";
    }
  }
  {
    SuspectNote note(database, AtRisk::kProcess);
    note.runs(candidate());
    EXPECT_EQ(notes().size(), 51U);
  }
  EXPECT_EQ(notes().size(), 50U);
  for (const auto& path : notes()) EXPECT_EQ(text_of(path), "precious") << path;
}

TEST_F(SuspectNoteTest, NothingBesideADatabaseKeepsItFromServing) {
  { ConfigDatabase(database, ConfigDatabase::Mode::kReadWrite); }
  run_and_die(AtRisk::kProcess);
  edit(kOp, "");
  ConfigStore store({.user_path = database, .site_paths = {}, .shipped_paths = {}});
  EXPECT_THAT(store.find({"scaling", "fake:1", "auto", "rows=100"}, ""), IsEmpty());
  EXPECT_TRUE(store.status().at(0).writable);
}

TEST(ProcessIdentity, OnlyWhatIsAProcessCanHaveEnded) {
  const ProcessIdentity us = this_process();
  if (us.boot.empty()) GTEST_SKIP() << "no /proc here";
  EXPECT_FALSE(has_ended(us));
  EXPECT_TRUE(has_ended({us.pid, us.started + 1, us.boot})) << "another process of this number";
  EXPECT_FALSE(has_ended({us.pid, us.started + 1, us.boot + "?"})) << "of another boot";
  constexpr std::int64_t kNone[] = {0,
                                    -1,
                                    -4'000'000,
                                    std::int64_t{1} << 32U,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
  for (const std::int64_t pid : kNone) EXPECT_FALSE(has_ended({pid, 1, us.boot})) << pid;
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
