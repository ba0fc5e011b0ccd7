// One row of a database that means nothing here, or one damaged page of it, ends no verb: the other
// rows are listed, served and handled as if it were alone.
#include <filesystem>
#include <fstream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"
#include "cache/raw_sqlite.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Mode = ConfigDatabase::Mode;
using Words = std::vector<std::string>;

/// A database with two tuned problems, T=16 and T=40.
class OddRows : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tuned_ = std::make_unique<Sandbox>();
    const Outcome outcome = tuned_->run({"tune", "recurrent_attention", "T=16,40", "H=2", "D=8",
                                         "--warmup", "1", "--iters", "4", "--budget", "30s"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  static void TearDownTestSuite() { tuned_.reset(); }

  OddRows() {
    fs::create_directories(fs::path(here.database()).parent_path());
    fs::copy_file(tuned_->database(), here.database());
  }

  void edit(const std::function<void(DatabaseContent&)>& change) const {
    ConfigDatabase(here.database(), Mode::kReadWrite).edit(change);
  }
  static StoredDecision& decision_of(DatabaseContent& all, const std::string& tokens) {
    for (StoredDecision& decision : all.decisions) {
      if (decision.row.key.problem.find(" T=" + tokens + " ") != std::string::npos) return decision;
    }
    throw std::logic_error("no row of T=" + tokens);
  }
  /// How many rows `db ls` lists, and the exit status it must have.
  std::size_t listed() const {
    const Outcome outcome = here.run({"db", "ls", "-o", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json().size();
  }
  /// Runs each verb that reads rows: none ends for one of them.
  void expect_every_verb_to_end_well(int verified) const {
    const std::string all = here.file("all.jsonl");
    const std::string other = here.file("other.db");
    const std::string key = here.run({"db", "ls", "-o", "json"}).json().at(0).at("key");
    const std::pair<Words, int> calls[] = {
        {{"db", "ls"}, 0},
        {{"db", "show", key}, 0},
        {{"db", "show", "recurrent_attention", "T=16", "H=2", "D=8"}, 0},
        {{"db", "stats"}, 0},
        {{"db", "verify"}, verified},
        {{"db", "verify", "--relaunch"}, verified},
        {{"db", "pin"}, 0},
        {{"db", "export", "--output", all}, 0},
        {{"db", "export", "-o", "csv"}, 0},
        {{"db", "export", "--ship", "--min-grade", "C", "--output", here.file("ship.db")}, 0},
        {{"db", "merge", here.database(), all, "--output", other}, 0},
        {{"db", "diff", here.database(), other}, 0},
        {{"db", "import", other}, 0},
        {{"db", "import", other, "--dry-run"}, 0},
        {{"db", "gc", "--dry-run"}, 0},
        {{"report"}, 0},
        {{"report", other}, 0},
        {{"explain", "recurrent_attention", "T=16,17,4096", "H=2", "D=8", "--policy", "db"}, 0},
        {{"run", "recurrent_attention", "T=17", "H=2", "D=8", "--policy", "db"}, 0},
        {{"tune", "recurrent_attention", "T=16,17", "H=2", "D=8", "--dry-run"}, 0},
        {{"doctor"}, 0},
        {{"db", "unpin", "recurrent_attention", "T=16", "H=2", "D=8"}, 1},
        {{"db", "gc"}, 0},
    };
    for (const auto& [arguments, exit_code] : calls) {
      const Outcome outcome = here.run(arguments);
      EXPECT_EQ(outcome.exit_code, exit_code) << ::testing::PrintToString(arguments) << '\n'
                                              << outcome.err;
    }
  }

  Sandbox here;

 private:
  static inline std::unique_ptr<Sandbox> tuned_;
};

/// Problems that the op cannot read, or would not write so.
class OddProblem : public OddRows, public ::testing::WithParamInterface<const char*> {};

TEST_P(OddProblem, EndsNoVerb) {
  edit([](DatabaseContent& all) {
    StoredDecision odd = decision_of(all, "40");
    odd.row.key.problem = GetParam();
    all.decisions.push_back(odd);
    all.pins.push_back({odd.row.key, odd.row.kernel, odd.row.config, "an incident", 1, 0});
    all.quarantine.push_back({odd.row.key.op, odd.row.key.device_class, odd.row.kernel,
                              odd.row.kernel_version, "tile_v=8", GetParam(), "wrong", 1});
  });
  EXPECT_EQ(listed(), 3U);
  const Outcome report = here.run({"report"});
  EXPECT_THAT(report.err, HasSubstr("1 row has a problem that the op cannot read"));
  expect_every_verb_to_end_well(1);
  EXPECT_EQ(listed(), 2U) << "gc removed it, and it alone";
}

INSTANTIATE_TEST_SUITE_P(Texts, OddProblem,
                         ::testing::Values("T=", "=", "", "nonsense", "T=16 T=16", "T=x",
                                           "T=-1 H=2 K=8 V=8", "T=99999999999999999999",
                                           "B=9223372036854775807 T=9223372036854775807"));

/// Configs that are none of their kernel's.
class OddConfig : public OddRows, public ::testing::WithParamInterface<const char*> {};

TEST_P(OddConfig, EndsNoVerb) {
  edit([](DatabaseContent& all) {
    StoredDecision& odd = decision_of(all, "40");
    odd.row.config = GetParam();
    odd.row.default_config = GetParam();
    for (TrialRow& trial : odd.trials) trial.config = GetParam();
  });
  expect_every_verb_to_end_well(1);
  EXPECT_EQ(listed(), 1U) << "gc removed it, and it alone";
}

TEST_P(OddConfig, IsTunedAsIfItWereNotThere) {
  edit([](DatabaseContent& all) { decision_of(all, "40").row.config = GetParam(); });
  const Words tune{"tune",    "recurrent_attention",
                   "T=16,40", "H=2",
                   "D=8",     "--budget",
                   "30s",     "--warmup",
                   "1",       "--iters",
                   "4",       "-o",
                   "json"};
  const Outcome outcome = here.run(tune);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at(0).at("result"), "already tuned");
  EXPECT_EQ(outcome.json().at(1).at("result"), "stored");
  EXPECT_EQ(here.run({"db", "verify"}).exit_code, 0) << "it is replaced";
}

TEST_P(OddConfig, IsTunedByACallAsIfItWereNotThere) {
  edit([](DatabaseContent& all) { decision_of(all, "40").row.config = GetParam(); });
  const Outcome outcome =
      here.run({"run", "recurrent_attention", "T=40", "H=2", "D=8", "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at(0).at("tunings"), 1);
  EXPECT_EQ(here.run({"db", "verify"}).exit_code, 0) << "it is replaced";
}

INSTANTIATE_TEST_SUITE_P(Texts, OddConfig,
                         ::testing::Values("bogus=4", "nonsense", "=", "tile_v=7",
                                           "tile_v=32,tile_v=32", "isa=avx1024"));

/// Overwrites the first page of a table.
void damage_table(const std::string& path, const std::string& table) {
  const std::int64_t page = raw_integer(
      path, "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = '" + table + "'");
  const std::int64_t page_size = raw_integer(path, "PRAGMA page_size");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp((page - 1) * page_size);
  file << std::string(static_cast<std::size_t>(page_size), '\x55');
}

TEST_F(OddRows, ADamagedPageOfTrialsCostsTheEvidenceAlone) {
  damage_table(here.database(), "trial");
  EXPECT_EQ(listed(), 2U);
  for (const Words& arguments :
       {Words{"db", "show", "recurrent_attention", "T=16", "H=2", "D=8"},
        Words{"explain", "recurrent_attention", "T=16", "H=2", "D=8"}, Words{"report"}}) {
    const Outcome outcome = here.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("candidates that cannot be read are left out: trial"));
  }
  const Outcome verified = here.run({"db", "verify", "-o", "json"});
  EXPECT_EQ(verified.exit_code, 1) << "damaged, and readable";
  EXPECT_EQ(verified.json().at(0).at("result"), "damaged");
  for (const Words& arguments :
       {Words{"db", "stats"}, Words{"db", "export", "--output", here.file("saved.db")},
        Words{"db", "merge", here.database(), "--output", here.file("merged.db")},
        Words{"run", "recurrent_attention", "T=16", "H=2", "D=8", "--policy", "db"}}) {
    const Outcome outcome = here.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_EQ(read_database_file(here.file("saved.db")).decisions.size(), 2U);
}

}  // namespace
}  // namespace attune::test
