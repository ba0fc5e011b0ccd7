// Databases as killed writers and other programs leave them, through the verbs that use them.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"
#include "cache/child_process.hpp"
#include "cache/raw_sqlite.hpp"
#include "cache/sample_rows.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::size_t kRows = 30;

/// A verb with --db: what it does to `kRows` decisions that nothing here knows.
struct VerbCase {
  const char* name;
  std::vector<std::string> words;
  int exit_code = 0;
};

class LeftDatabase : public ::testing::TestWithParam<VerbCase> {
 protected:
  LeftDatabase() {
    DatabaseContent content;
    for (std::size_t i = 0; i < kRows; ++i) {
      content.decisions.push_back({sample_row(static_cast<std::int64_t>(i)), {}});
    }
    write_database_file(path, content);
    write_database_file(here.file("more.jsonl"), {});
  }

  Outcome run_verb() const {
    std::vector<std::string> arguments = GetParam().words;
    for (std::string& word : arguments) {
      if (word == "MORE") word = here.file("more.jsonl");
    }
    arguments.insert(arguments.begin(), "db");
    arguments.insert(arguments.end(), {"--db", path});
    return here.run(arguments);
  }
  void leave_behind(const std::string& sql) const {
    ASSERT_FALSE(in_child([&] {
      raw_sql(path, sql, [] { raise(SIGKILL); });
      return true;
    }));
  }
  /// The file alone, with all rows, sound.
  void expect_sound() const {
    for (const char* suffix : {"-journal", "-wal", "-shm"}) {
      EXPECT_FALSE(fs::exists(path + suffix)) << suffix;
    }
    const ConfigDatabase db(path, ConfigDatabase::Mode::kReadOnly);
    EXPECT_TRUE(db.verify().ok());
    EXPECT_EQ(db.read().rows.size(), kRows);
  }

  Sandbox here;
  const std::string path = here.file("x.db");
};

TEST_P(LeftDatabase, ByAKilledWriterIsRecovered) {
  leave_behind("PRAGMA cache_size=1; BEGIN; UPDATE decision SET samples = 1");
  ASSERT_TRUE(fs::exists(path + "-journal"));
  const Outcome outcome = run_verb();
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  expect_sound();
}

TEST_P(LeftDatabase, InWalModeIsUsedAndNothingLiesBesideItAfterwards) {
  raw_sql(path, "PRAGMA journal_mode=WAL");
  const Outcome outcome = run_verb();
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  expect_sound();
}

TEST_P(LeftDatabase, WithChangesInItsLogIsUsedWithThem) {
  leave_behind("PRAGMA journal_mode=WAL; CREATE TABLE t(x); DROP TABLE t");
  ASSERT_TRUE(fs::exists(path + "-wal"));
  const Outcome outcome = run_verb();
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  expect_sound();
}

TEST_P(LeftDatabase, InAFolderThatMayNotBeEnteredIsADatabaseError) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  fs::create_directory(here.file("sealed"));
  fs::rename(path, here.file("sealed/x.db"));
  fs::permissions(here.file("sealed"), fs::perms::owner_all);
  fs::permissions(fs::path(path).parent_path(), static_cast<fs::perms>(0755));
  Call call{{"db"}};
  for (const std::string& word : GetParam().words) {
    call.arguments.push_back(word == "MORE" ? here.file("more.jsonl") : word);
  }
  call.arguments.insert(call.arguments.end(), {"--db", here.file("sealed/x.db")});
  call.under = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const Outcome outcome = here.run(call);
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("Permission denied"));
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, LeftDatabase,
    ::testing::Values(VerbCase{"gc", {"gc"}}, VerbCase{"gc_dry", {"gc", "--dry-run"}},
                      VerbCase{"import", {"import", "MORE"}},
                      VerbCase{"import_dry", {"import", "MORE", "--dry-run"}},
                      VerbCase{"unpin", {"unpin", "recurrent_attention", "T=8", "H=1", "D=8"}, 1},
                      VerbCase{"pins", {"pin"}}, VerbCase{"ls", {"ls"}},
                      VerbCase{"stats", {"stats"}}, VerbCase{"verify", {"verify"}},
                      VerbCase{"export", {"export", "-o", "jsonl"}}),
    [](const auto& verb) { return std::string(verb.param.name); });

}  // namespace
}  // namespace attune::test
