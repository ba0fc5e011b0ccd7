// kill -9 of a verb that writes, at any time and before each of its system calls: what was there is
// there, or all of what the verb makes; the same verb again goes on, and leaves nothing else.
#include <signal.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"
#include "cache/sample_rows.hpp"
#include "support/campaign.hpp"
#include "traced_calls.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;
using Rows = std::multiset<std::string>;

/// What changes a file, or the folder that it is in.
const std::vector<std::string> kCalls{"write",    "pwrite64", "fsync",  "fdatasync", "ftruncate",
                                      "unlink",   "unlinkat", "rename", "renameat",  "renameat2",
                                      "mknod",    "mknodat",  "chmod",  "fchmod",    "fchmodat",
                                      "fchownat", "fchown"};

struct WritingVerb {
  std::string name;
  std::string output;  // the file that it changes; "" for the user's database
  bool onto_another = true;
  std::vector<std::string> arguments;  // OUTPUT: its path; MINE, MORE: of sound files
  int again = 0;                       // exit status when it is done already

  friend std::ostream& operator<<(std::ostream& out, const WritingVerb& verb) {
    return out << verb.name;
  }
};

std::vector<WritingVerb> verbs() {
  return {
      {"import", "", true, {"db", "import", "MORE"}},
      {"gc", "", true, {"db", "gc", "--older-than", "24h"}},
      {"pin",
       "",
       true,
       {"db", "pin", "recurrent_attention", "T=8", "H=1", "D=4", "--config",
        "kernel=reference.recurrent_attention", "--reason", "a test"}},
      {"unpin", "", true, {"db", "unpin", "recurrent_attention", "T=6", "H=1", "D=4"}, 1},
      {"use", "", true, {"db", "use", "MORE"}},
      {"export_to_a_new_database", "out.db", false, {"db", "export", "--output", "OUTPUT"}},
      {"export_onto_a_database", "out.db", true, {"db", "export", "--output", "OUTPUT"}},
      {"export_onto_JSONL", "out.jsonl", true, {"db", "export", "--output", "OUTPUT"}},
      {"merge_onto_a_database",
       "out.db",
       true,
       {"db", "merge", "MINE", "MORE", "--output", "OUTPUT"}},
      {"merge_onto_CSV", "out.csv", true, {"db", "merge", "MINE", "MORE", "--output", "OUTPUT"}},
  };
}

/// The rows of a file as they will be once what a killed writer began is undone, which is done to a
/// copy. None where it is not there.
Rows rows_at(const std::string& path) {
  if (!fs::exists(path)) return {};
  const TemporaryFolder scratch;
  const std::string copy = scratch.file(fs::path(path).filename());
  fs::copy_file(path, copy);
  if (fs::exists(path + "-journal")) fs::copy_file(path + "-journal", copy + "-journal");
  if (path.ends_with(".db")) {
    const Verification found = ConfigDatabase(copy, ConfigDatabase::Mode::kReadWrite).verify();
    EXPECT_TRUE(found.ok()) << found.error << testing::PrintToString(found.problems);
  }
  const DatabaseContent content = read_database_file(copy);
  Rows rows;
  for (const auto& [row, trials] : content.decisions) rows.insert("decision " + text_of(row));
  for (const PinRow& pin : content.pins) rows.insert(str("pin ", pin.key.problem, ' ', pin.reason));
  for (const QuarantineRow& row : content.quarantine) rows.insert("quarantine " + text_of(row));
  return rows;
}

/// Rows from the i-th on; every other one is of long ago.
DatabaseContent some_rows(std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + n; ++i) {
    StoredDecision decision{sample_row(i), {}};
    if (i % 2 == 0) decision.row.created = std::time(nullptr);
    content.decisions.push_back(decision);
    if (i % 5 == 0) content.quarantine.push_back(sample_quarantine(i));
  }
  return content;
}

class KilledVerbs : public testing::TestWithParam<WritingVerb> {
 protected:
  KilledVerbs() {
    fs::create_directory(here.file("sound"));
    write_database_file(sound("mine.db"), some_rows(0, 60));
    for (const char* name : {"more.jsonl", "out.db", "out.jsonl", "out.csv"})
      write_database_file(sound(name), some_rows(name[0] == 'm' ? 100 : 500, 60));
    const Outcome pinned = here.run({"db", "pin", "recurrent_attention", "T=6", "H=1", "D=4",
                                     "--config", "kernel=reference.recurrent_attention", "--reason",
                                     "an older test", "--db", sound("mine.db")});
    EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
    reset();
    before = rows_at(changed());
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = here.run(call());
    takes = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    after = rows_at(changed());
    EXPECT_TRUE(before != after);
    mine = rows_at(here.database());
  }

  std::string sound(const std::string& name) const { return here.file("sound/" + name); }
  std::string folder() const { return here.file("data/attune"); }
  std::string changed() const {
    return GetParam().output.empty() ? here.database() : folder() + '/' + GetParam().output;
  }

  Call call() const {
    Call call;
    for (std::string word : GetParam().arguments) {
      if (word == "MORE") word = sound("more.jsonl");
      if (word == "MINE") word = sound("mine.db");
      if (word == "OUTPUT") word = changed();
      call.arguments.push_back(word);
    }
    // By name: the program goes on without a database that it finds by itself and cannot use.
    call.arguments.insert(call.arguments.end(), {"--db", here.database()});
    return call;
  }

  void reset() const {
    fs::remove_all(folder());
    fs::create_directories(folder());
    fs::copy_file(sound("mine.db"), here.database());
    if (!GetParam().output.empty() && GetParam().onto_another)
      fs::copy_file(sound(GetParam().output), changed());
  }

  /// After the verb was killed: nothing is half done, and the same verb goes on.
  void expect_that_it_goes_on() const {
    const Rows now = rows_at(changed());
    EXPECT_TRUE(now == before || now == after) << "half of it: " << now.size() << " rows";
    const Outcome again = here.run(call());
    EXPECT_EQ(again.exit_code, now == after ? GetParam().again : 0) << again.err;
    const Rows then = rows_at(changed());
    EXPECT_TRUE(then == after) << then.size() << " rows, not the " << after.size() << " of "
                               << GetParam();
    EXPECT_TRUE(rows_at(here.database()) == mine) << "the user's database has changed";
    std::set<std::string> expected{"attune.db"}, names;
    if (!GetParam().output.empty()) expected.insert(GetParam().output);
    if (GetParam().name == "use") expected.insert("attune.db.history");
    for (const auto& entry : fs::directory_iterator(folder()))
      names.insert(entry.path().filename());
    EXPECT_EQ(names, expected);
  }

  Sandbox here;
  Rows before, after;  // of the file that is changed
  Rows mine;           // of the user's database, at the end
  std::chrono::nanoseconds takes{};
  std::mt19937 random{16};
};

TEST_P(KilledVerbs, AtAnyTimeAreDoneOrNotAndGoOn) {
  const int wanted = campaign_length(6, 1000);
  int kills = 0, done = 0;
  for (int round = 0; kills < wanted; ++round) {
    ASSERT_LT(round, 20 * wanted) << "ends before it is killed";
    reset();
    const pid_t child = here.start(call());
    std::this_thread::sleep_for(takes * static_cast<double>(random() % 1000) / 1000.0);
    ::kill(child, SIGKILL);
    const bool killed = here.finish(child).exit_code == 128 + SIGKILL;
    kills += killed ? 1 : 0;
    done += killed && rows_at(changed()) == after ? 1 : 0;
    expect_that_it_goes_on();
    if (HasFailure()) return;
  }
  std::cout << kills << " kills, " << done << " of them when all was done\n";
}

TEST_P(KilledVerbs, BeforeAnySystemCallAreDoneOrNotAndGoOn) {
  reset();
  const std::map<std::string, int> counts = count_system_calls(here, call(), kCalls);
  if (counts.empty()) GTEST_SKIP() << "no strace here that may trace";
  int kills = 0;
  for (const auto& [name, count] : counts) {
    const int step = campaign_length(std::max(1, count / 4), 1);
    for (int n = 1 + (count - 1) % step; n <= count; n += step) {
      SCOPED_TRACE(str("killed before ", name, ' ', n, " of ", count));
      reset();
      const Outcome killed = here.run(inject(here, call(), name, n, "signal=KILL"));
      EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
      expect_that_it_goes_on();
      ++kills;
      if (HasFailure()) return;
    }
  }
  std::cout << kills << " kills\n";
}

INSTANTIATE_TEST_SUITE_P(Of, KilledVerbs, testing::ValuesIn(verbs()),
                         [](const auto& verb) { return verb.param.name; });

}  // namespace
}  // namespace attune::test
