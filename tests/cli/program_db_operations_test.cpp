// Databases as operators handle them: verified, merged, compared, exported, shipped, cleaned,
// pinned.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>
#include <attune/cache/suspect_note.hpp>
#include <attune/core/device.hpp>

#include "attune_process.hpp"
#include "cache/raw_sqlite.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Mode = ConfigDatabase::Mode;

constexpr const char* kKernel = "simd.recurrent_attention";

/// A database that was tuned here, once for all tests.
class DatabaseOperations : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tuned_ = std::make_unique<Sandbox>();
    const Outcome outcome = tuned_->run({"tune", "recurrent_attention", "T=16,40", "H=2", "D=8",
                                         "--warmup", "1", "--iters", "4", "--budget", "30s"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  static void TearDownTestSuite() { tuned_.reset(); }

  DatabaseOperations() {
    fs::create_directories(fs::path(here.database()).parent_path());
    fs::copy_file(tuned_->database(), here.database());
  }

  DatabaseContent content() const { return read_database_file(here.database()); }
  DatabaseContent content(const std::string& name) const {
    return read_database_file(here.file(name));
  }
  /// The user's database with a change.
  void edit(const std::function<void(DatabaseContent&)>& change) const {
    ConfigDatabase(here.database(), Mode::kReadWrite).edit(change);
  }
  Outcome db(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "db");
    return here.run(std::move(arguments));
  }
  std::string bytes(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Sandbox here;

 private:
  static inline std::unique_ptr<Sandbox> tuned_;
};

TEST_F(DatabaseOperations, VerifyHoldsEachConfigAgainstItsKernel) {
  EXPECT_EQ(db({"verify"}).exit_code, 0);
  edit([](DatabaseContent& all) { all.decisions[0].row.config = "tile_v=7"; });
  const Outcome outcome = db({"verify", "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.json().at(0).at("result"), "invalid");
  EXPECT_EQ(outcome.json().at(0).at("invalid"), 1);
  EXPECT_THAT(outcome.json().at(0).at("detail").get<std::string>(), HasSubstr("tile_v"));
}

TEST_F(DatabaseOperations, VerifyFindsADamagedRow) {
  raw_sql(here.database(), "UPDATE decision SET samples = samples + 1");
  const Outcome outcome = db({"verify", "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.json().at(0).at("result"), "damaged");
  EXPECT_THAT(outcome.json().at(0).at("detail").get<std::string>(), HasSubstr("checksum"));
}

TEST_F(DatabaseOperations, VerifyCountsStaleAndUnknownRowsAndStrictRefusesThem) {
  edit([](DatabaseContent& all) {
    all.decisions[0].row.kernel_version = 0;
    all.decisions[1].row.kernel = "plugin.kernel";
  });
  const Outcome outcome = db({"verify", "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json().at(0).at("stale"), 1);
  EXPECT_EQ(outcome.json().at(0).at("unknown"), 1);
  EXPECT_EQ(db({"verify", "--strict"}).exit_code, 1);
}

TEST_F(DatabaseOperations, VerifyHoldsRowsOfOtherDevicesAgainstTheirClass) {
  edit([](DatabaseContent& all) {
    for (StoredDecision& decision : all.decisions) {
      decision.row.key.device_class = "cpu:x86-64:sse4.2:4c:l1=32K:l2=1M:l3=8M";
      decision.row.config = "tokens_per_pass=1,tile_v=32,threads=1,isa=avx512";
    }
  });
  const Outcome outcome = db({"verify", "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.json().at(0).at("detail").get<std::string>(), HasSubstr("avx"));
}

TEST_F(DatabaseOperations, RowsOfTwoDeviceClassesStandInOneFolderAndServeEachItsOwn) {
  // The same machine with more cores: equal problems, other rows.
  const DeviceInfo& info = cpu_device().info();
  const std::string cores = str(':', info.cores, "c:");
  std::string larger = info.device_class;
  larger.replace(larger.find(cores), cores.size(), str(':', info.cores + 8, "c:"));
  DatabaseContent there = content();
  for (StoredDecision& decision : there.decisions) decision.row.key.device_class = larger;
  fs::create_directory(here.file("db.d"));
  write_database_file(here.file("db.d/here.db"), content());
  write_database_file(here.file("db.d/there.db"), there);
  fs::remove(here.database());
  const auto call = [&](std::vector<std::string> arguments) {
    Call made{std::move(arguments)};
    made.environment.push_back("ATTUNE_SYSTEM_DB_PATH=" + here.file("db.d"));
    return here.run(made);
  };

  const Outcome verified = call({"db", "verify", "--strict", "-o", "json"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  ASSERT_EQ(verified.json().size(), 2U);
  for (const auto& file : verified.json()) EXPECT_EQ(file.at("rows"), 2);

  const Outcome diff =
      db({"diff", here.file("db.d/here.db"), here.file("db.d/there.db"), "-o", "json"});
  EXPECT_EQ(diff.exit_code, 1);
  ASSERT_EQ(diff.json().size(), 4U);
  for (const auto& row : diff.json()) {
    const bool is_larger = row.at("device_class") == larger;
    EXPECT_EQ(row.at("change"), is_larger ? "only in the second" : "only in the first");
  }

  const std::vector<std::string> problem{"recurrent_attention", "T=40", "H=2", "D=8"};
  std::vector<std::string> arguments{"explain", "--policy", "db"};
  arguments.insert(arguments.end(), problem.begin(), problem.end());
  EXPECT_THAT(call(arguments).out, HasSubstr("a site row of " + here.file("db.d/here.db")));
  fs::remove(here.file("db.d/here.db"));
  const std::string without = call(arguments).out;
  EXPECT_THAT(without, HasSubstr("5 persistent  miss"));
  EXPECT_THAT(without, HasSubstr("for device class " + larger));
}

TEST_F(DatabaseOperations, VerifyRelaunchesRowsOnTheirDevice) {
  const nlohmann::json rows = db({"verify", "--relaunch", "-o", "json"}).json();
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("result"), "ok");
    EXPECT_GT(row.at("median_us"), 0);
  }
}

TEST_F(DatabaseOperations, TextsAndDatabasesCarryTheSame) {
  for (const char* name : {"out.jsonl", "out.csv", "out.db"}) {
    ASSERT_EQ(db({"export", "--output", here.file(name)}).exit_code, 0) << name;
    EXPECT_EQ(content(name), content()) << name;
    const Outcome same = db({"diff", here.database(), here.file(name)});
    EXPECT_EQ(same.exit_code, 0) << same.out;
  }
  EXPECT_EQ(db({"export", "-o", "jsonl"}).out, bytes(here.file("out.jsonl")));
  EXPECT_EQ(db({"export", "-o", "csv"}).out, bytes(here.file("out.csv")));
  EXPECT_EQ(db({"export"}).exit_code, 2) << "a table is not to be read back";
}

TEST_F(DatabaseOperations, DiffTellsAChoiceFromItsEvidence) {
  ASSERT_EQ(db({"export", "--output", here.file("before.jsonl")}).exit_code, 0);
  edit([](DatabaseContent& all) {
    all.decisions[0].row.samples += 1;
    all.decisions[1].row.kernel = "reference.recurrent_attention";
    all.decisions[1].row.config = "";
  });
  const Outcome outcome = db({"diff", here.file("before.jsonl"), here.database(), "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  ASSERT_EQ(outcome.json().size(), 2U);
  EXPECT_EQ(outcome.json().at(0).at("change"), "evidence");
  EXPECT_EQ(outcome.json().at(1).at("change"), "choice");
}

TEST_F(DatabaseOperations, MergeTakesTheGreaterSpeedUpAndWritesNoInput) {
  const std::string other = here.file("other.jsonl");
  DatabaseContent changed = content();
  changed.decisions[0].row.noise = NoiseGrade::kA;
  changed.decisions[0].row.median_us = 1000;
  changed.decisions[0].row.default_us = 9000;
  changed.decisions.pop_back();
  write_database_file(other, changed);
  const std::string before = bytes(here.database()) + bytes(other);
  const std::string output = here.file("all.db");
  ASSERT_EQ(db({"merge", here.database(), other, "--output", output}).exit_code, 0);
  const DatabaseContent merged = read_database_file(output);
  EXPECT_EQ(merged, merge(content(), changed));
  EXPECT_EQ(merged.decisions[0], changed.decisions[0]);
  EXPECT_EQ(bytes(here.database()) + bytes(other), before);
  EXPECT_EQ(db({"merge", other, here.database(), "--output", output}).exit_code, 0);
  EXPECT_EQ(read_database_file(output), merged);
}

TEST_F(DatabaseOperations, MergeAndImportKeepAStaleRowOnlyWhereThereIsNoOther) {
  const std::string old = here.file("old.jsonl");
  DatabaseContent stale = content();
  for (StoredDecision& decision : stale.decisions) {
    decision.row.kernel_version = 0;
    decision.row.noise = NoiseGrade::kA;
    decision.row.median_us = 1;
    decision.row.default_us = 9000;
  }
  write_database_file(old, stale);
  edit([](DatabaseContent& all) { all.decisions.pop_back(); });
  const std::string output = here.file("all.db");
  ASSERT_EQ(db({"merge", old, here.database(), "--output", output}).exit_code, 0);
  const DatabaseContent merged = read_database_file(output);
  ASSERT_EQ(merged.decisions.size(), 2U);
  EXPECT_EQ(merged.decisions[0], content().decisions[0]);
  EXPECT_EQ(merged.decisions[1], stale.decisions[1]);
  ASSERT_EQ(db({"merge", here.database(), old, "--output", output}).exit_code, 0);
  EXPECT_EQ(read_database_file(output), merged) << "in either order";
  ASSERT_EQ(db({"import", old}).exit_code, 0);
  EXPECT_EQ(content(), merged);
}

TEST_F(DatabaseOperations, AnInputOrADatabaseInEffectIsNeverTheOutput) {
  const std::string other = here.file("other.jsonl");
  write_database_file(other, content());
  EXPECT_EQ(db({"merge", other, "--output", other}).exit_code, 2);
  EXPECT_EQ(db({"merge", other, "--output", here.database()}).exit_code, 2);
  EXPECT_EQ(db({"export", "--output", here.database()}).exit_code, 2);
  EXPECT_EQ(db({"merge", other}).exit_code, 2) << "no --output";
}

TEST_F(DatabaseOperations, ImportAddsToTheUsersRowsByTheRuleItIsGiven) {
  DatabaseContent theirs = content();
  theirs.decisions[0].row.config = "threads=1";
  theirs.decisions[0].row.noise = NoiseGrade::kC;
  theirs.decisions[0].row.median_us = 100;
  theirs.decisions[0].row.default_us = 1;
  const DatabaseContent ours = content();
  const std::string file = here.file("theirs.jsonl");
  write_database_file(file, theirs);

  EXPECT_EQ(db({"import", file, "--on-conflict", "theirs", "--dry-run"}).exit_code, 0);
  EXPECT_EQ(content(), ours) << "a dry run writes nothing";
  ASSERT_EQ(db({"import", file}).exit_code, 0);
  EXPECT_EQ(content(), merge(ours, theirs));
  ASSERT_EQ(db({"import", file, "--on-conflict", "theirs"}).exit_code, 0);
  EXPECT_EQ(content(), theirs);

  fs::remove(here.database());
  ASSERT_EQ(db({"import", file}).exit_code, 0);
  EXPECT_EQ(content(), theirs) << "into a new database";
}

TEST_F(DatabaseOperations, AnImportThatCannotBeReadImportsNothing) {
  const DatabaseContent before = content();
  const std::string good = here.file("good.jsonl");
  DatabaseContent more = before;
  more.decisions[0].row.key.problem = "another";
  write_database_file(good, more);
  std::ofstream(here.file("bad.jsonl")) << bytes(good) << "{\"table\":\"pin\"}\n";
  const Outcome outcome = db({"import", good, here.file("bad.jsonl")});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("bad.jsonl:"));
  EXPECT_THAT(outcome.err, HasSubstr("op: is missing"));
  EXPECT_EQ(content(), before);
}

TEST_F(DatabaseOperations, AnImportWithoutEndIsRefusedInBoundedMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than the limit";
#endif
  const DatabaseContent before = content();
  const std::string endless = here.file("endless.jsonl");
  std::ofstream(endless) << "{\"table\":";
  fs::resize_file(endless, std::uintmax_t{1} << 30);  // a hole: it takes no room
  std::string nested;
  for (int i = 0; i < 1 << 20; ++i) nested += "{\"a\":";
  const std::string deep = here.file("deep.jsonl");
  std::ofstream(deep) << '\n' << nested;
  const std::vector<std::string> in_256_mb = {"sh", "-c", "ulimit -v 262144; exec \"$@\"", "sh"};
  for (const auto& [file, where] :
       {std::pair(endless, ":1: longer than"), std::pair(deep, ":2: ")}) {
    const Outcome outcome = here.run(Call{.arguments = {"db", "import", file}, .under = in_256_mb});
    EXPECT_EQ(outcome.exit_code, 4) << file;
    EXPECT_THAT(outcome.err, HasSubstr(file + where));
  }
  EXPECT_EQ(content(), before);
}

TEST_F(DatabaseOperations, ShipsOnlyRowsThatAreQuietAndValid) {
  edit([](DatabaseContent& all) {
    all.decisions[0].row.noise = NoiseGrade::kC;
    all.decisions[1].row.noise = NoiseGrade::kA;
    const RowKey key = all.decisions[0].row.key;
    all.pins.push_back({key, kKernel, "", "mine", 1, 0});
    all.quarantine.push_back({key.op, key.device_class, kKernel, 1, "a=1", "", "it hung", 1});
    all.quarantine.push_back(
        {key.op, key.device_class, kKernel, 1, "a=2", "", std::string(kSuspect) + "?", 1});
  });
  const std::string shipped = here.file("shipped.db");
  const Outcome outcome = db({"export", "--ship", "--output", shipped, "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(outcome.json().size(), 1U);
  EXPECT_THAT(outcome.json().at(0).at("not_shipped").get<std::string>(), HasSubstr("noise"));
  const DatabaseContent part = read_database_file(shipped);
  ASSERT_EQ(part.decisions.size(), 1U);
  EXPECT_EQ(part.decisions[0].row, content().decisions[1].row);
  EXPECT_TRUE(part.decisions[0].trials.empty());
  EXPECT_TRUE(part.pins.empty());
  ASSERT_EQ(part.quarantine.size(), 1U) << "a suspicion is not shipped";
  EXPECT_EQ(part.quarantine[0].reason, "it hung");
  EXPECT_EQ(fs::status(shipped).permissions() & fs::perms::owner_write, fs::perms::none);

  edit([](DatabaseContent& all) { all.decisions[1].row.config = "tile_v=7"; });
  EXPECT_EQ(db({"export", "--ship", "--output", here.file("none.db")}).exit_code, 1);
  EXPECT_FALSE(fs::exists(here.file("none.db")));
}

TEST_F(DatabaseOperations, AShippedDatabaseServesWithoutTuning) {
  const std::string shipped = here.file("shipped.db");
  ASSERT_EQ(db({"export", "--ship", "--min-grade", "C", "--output", shipped}).exit_code, 0);
  const Sandbox elsewhere;
  const std::vector<std::string> environment{"ATTUNE_SYSTEM_DB_PATH=" + shipped};
  const std::vector<std::string> problem{"recurrent_attention", "T=16", "H=2", "D=8"};
  std::vector<std::string> arguments{"run", "-o", "json"};
  arguments.insert(arguments.end(), problem.begin(), problem.end());
  const nlohmann::json found =
      elsewhere.run({.arguments = arguments, .environment = environment}).json();
  EXPECT_EQ(found.at(0).at("source"), "persistent");
  EXPECT_EQ(found.at(0).at("tunings"), 0);
  EXPECT_FALSE(fs::exists(elsewhere.database()));
}

TEST_F(DatabaseOperations, GcRemovesWhatCanNeverBeUsedAndSaysWhy) {
  edit([](DatabaseContent& all) {
    const RowKey key = all.decisions[0].row.key;
    all.decisions[0].row.config = "tile_v=7";
    all.decisions[1].row.kernel_version = 0;
    all.pins.push_back({key, kKernel, "", "over", 1, 2});
    all.pins.push_back({all.decisions[1].row.key, kKernel, "", "holds", 1, 0});
    all.quarantine.push_back({key.op, key.device_class, kKernel, 0, "", "", "of version 0", 1});
    all.quarantine.push_back({key.op, key.device_class, kKernel, 99, "", "", "newer", 1});
    all.quarantine.push_back(
        {key.op, key.device_class, kKernel, 99, "a=1", "", std::string(kSuspect) + "?", 1});
  });
  const DatabaseContent before = content();
  const nlohmann::json would = db({"gc", "--dry-run", "-o", "json"}).json();
  EXPECT_EQ(content(), before);
  EXPECT_EQ(db({"gc", "-o", "json"}).json(), would);
  ASSERT_EQ(would.size(), 4U);
  EXPECT_THAT(would.at(0).at("why").get<std::string>(), HasSubstr("invalid"));
  EXPECT_THAT(would.at(1).at("why").get<std::string>(), HasSubstr("expired"));
  EXPECT_THAT(would.at(2).at("why").get<std::string>(), HasSubstr("of version 0"));
  EXPECT_THAT(would.at(3).at("why").get<std::string>(), HasSubstr("a suspicion"));
  const DatabaseContent after = content();
  ASSERT_EQ(after.decisions.size(), 1U) << "the stale row is kept";
  EXPECT_EQ(after.decisions[0], before.decisions[1]);
  EXPECT_EQ(after.pins.at(0).reason, "holds");
  EXPECT_EQ(after.quarantine.at(0).reason, "newer");

  EXPECT_EQ(db({"gc", "--stale"}).exit_code, 0);
  EXPECT_TRUE(content().decisions.empty());
}

TEST_F(DatabaseOperations, GcRemovesDamagedRowsAndKeepsTheRest) {
  raw_sql(here.database(),
          "UPDATE decision SET samples = samples + 1 WHERE problem LIKE '%T=16 %'");
  const Outcome outcome = db({"gc", "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json().at(0).at("table"), "damaged");
  EXPECT_EQ(content().decisions.size(), 1U);
  EXPECT_EQ(db({"verify"}).exit_code, 0);
}

TEST_F(DatabaseOperations, ExportSavesWhatIsSoundOfADamagedDatabase) {
  raw_sql(here.database(),
          "UPDATE decision SET samples = samples + 1 WHERE problem LIKE '%T=16 %'");
  EXPECT_EQ(db({"verify"}).exit_code, 1);
  const std::string saved = here.file("saved.db");
  ASSERT_EQ(db({"export", "--output", saved}).exit_code, 0);
  EXPECT_EQ(read_database_file(saved).decisions.size(), 1U);
  EXPECT_EQ(db({"verify", saved}).exit_code, 0);
}

TEST_F(DatabaseOperations, APinHoldsUntilItIsTakenAway) {
  const std::vector<std::string> problem{"recurrent_attention", "T=16", "H=2", "D=8"};
  const auto with = [&](std::vector<std::string> first, std::vector<std::string> more) {
    first.insert(first.end(), problem.begin(), problem.end());
    first.insert(first.end(), more.begin(), more.end());
    return here.run(first);
  };
  const auto source = [&] {
    return with({"run"}, {"-o", "json"}).json().at(0).at("source").get<std::string>();
  };
  const std::vector<std::string> pin{"--config", "kernel=reference.recurrent_attention"};
  EXPECT_EQ(with({"db", "pin"}, pin).exit_code, 2) << "no reason";
  std::vector<std::string> full = pin;
  full.insert(full.end(), {"--reason", "issue 12", "--expires", "72h"});
  ASSERT_EQ(with({"db", "pin"}, full).exit_code, 0);
  EXPECT_EQ(source(), "pin");
  const nlohmann::json pins = db({"pin", "-o", "json"}).json();
  ASSERT_EQ(pins.size(), 1U);
  EXPECT_EQ(pins.at(0).at("reason"), "issue 12");
  EXPECT_NE(pins.at(0).at("expires"), "never");
  EXPECT_EQ(with({"db", "unpin"}, {}).exit_code, 0);
  EXPECT_EQ(source(), "persistent");
  EXPECT_EQ(with({"db", "unpin"}, {}).exit_code, 1) << "there is none";

  edit([](DatabaseContent& all) {
    all.pins.push_back(
        {all.decisions[0].row.key, "reference.recurrent_attention", "", "over", 1, 2});
  });
  EXPECT_EQ(source(), "persistent") << "an expired pin holds nothing";
  EXPECT_EQ(with({"db", "pin"}, {"--config", "kernel=nobodys", "--reason", "x"}).exit_code, 2);
}

TEST_F(DatabaseOperations, ShipsThePinsThatHoldWhenAsked) {
  edit([](DatabaseContent& all) {
    const ConfigRow& row = all.decisions[0].row;
    all.pins.push_back({row.key, row.kernel, row.config, "incident 7", 1, 0});
    const ConfigRow& other = all.decisions[1].row;
    all.pins.push_back({other.key, other.kernel, other.config, "over", 1, 2});
  });
  EXPECT_EQ(db({"export", "--pins", "--output", here.file("x.db")}).exit_code, 2);
  const std::string output = here.file("pins.db");
  const Outcome outcome =
      db({"export", "--ship", "--min-grade", "C", "--pins", "--output", output, "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("2 rows and 1 pin in "));
  EXPECT_THAT(outcome.out, HasSubstr("a pin that has expired"));
  ASSERT_EQ(content("pins.db").pins.size(), 1U);
  EXPECT_EQ(content("pins.db").pins[0].reason, "incident 7");
}

TEST_F(DatabaseOperations, DoctorAndTuneKnowWhichRowsAreStaleAndWhichAreForOthers) {
  EXPECT_THAT(here.run({"doctor"}).out, HasSubstr("2 rows: 2 for this machine"));
  EXPECT_THAT(here.run({"tune", "--stale"}).err, HasSubstr("no row that a device here can use is"));
  edit([](DatabaseContent& all) {
    StoredDecision elsewhere = all.decisions[0];
    elsewhere.row.key.device_class = "gpu:sm_90:132sm:l2=60M:mem=140G";
    elsewhere.row.library_version = "0.0.1";
    for (TrialRow& trial : elsewhere.trials) trial.key = elsewhere.row.key;
    all.decisions[1].row.library_version = "0.0.1";
    all.decisions.push_back(elsewhere);
  });
  EXPECT_THAT(here.run({"doctor"}).out,
              HasSubstr("3 rows: 2 for this machine, 1 of them stale ('attune tune --stale' "
                        "measures it again); 1 for other devices"));
  const nlohmann::json plan = here.run({"tune", "--stale", "--dry-run", "-o", "json"}).json();
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan.at(0).at("state"), "to tune");
  const nlohmann::json tuned = here.run({"tune", "--stale", "--warmup", "1", "--iters", "4",
                                         "--budget", "30s", "-o", "json"})
                                   .json();
  ASSERT_EQ(tuned.size(), 1U);
  EXPECT_THAT(here.run({"tune", "--stale"}).err, HasSubstr("no row that a device here can use is"));
}

TEST_F(DatabaseOperations, StatsSayWhichClassesTheFilesCover) {
  DatabaseContent other = content();
  other.decisions.pop_back();
  other.decisions[0].row.key.device_class = "gpu:sm_90:132sm:l2=60M:mem=140G";
  for (TrialRow& trial : other.decisions[0].trials) trial.key = other.decisions[0].row.key;
  write_database_file(here.file("other.db"), other);
  nlohmann::json rows = nlohmann::json::array();
  for (const nlohmann::json& row :
       db({"stats", here.database(), here.file("other.db"), "-o", "json"}).json()) {
    if (row.contains("coverage_percent")) rows.push_back(row);
  }
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows.at(0).at("coverage_percent"), 100);
  EXPECT_EQ(rows.at(1).at("device_class"), "gpu:sm_90:132sm:l2=60M:mem=140G");
  EXPECT_EQ(rows.at(1).at("problems"), 1);
  EXPECT_EQ(rows.at(1).at("of"), 2);
  EXPECT_EQ(rows.at(1).at("coverage_percent"), 50);
}

TEST_F(DatabaseOperations, UseKeepsWhatTheDatabaseHeldAndGoesBackToIt) {
  const std::string site = here.file("site.db"), next = here.file("next.db");
  write_database_file(site, content());
  DatabaseContent fewer = content();
  fewer.decisions.pop_back();
  write_database_file(next, fewer);
  EXPECT_EQ(db({"history", site, "-o", "json"}).json().at(0).at("state"), "in use, not kept");
  ASSERT_EQ(db({"use", next, site}).exit_code, 0);
  EXPECT_EQ(content("site.db"), fewer);
  const nlohmann::json history = db({"history", site, "-o", "json"}).json();
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history.at(0).at("decisions"), 2);
  EXPECT_EQ(history.at(1).at("state"), "in use");
  const Outcome back = db({"use", "1", site});
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_THAT(back.err, HasSubstr("holds generation 1: 2 rows, 0 pins; 'attune db use 2 "));
  EXPECT_EQ(content("site.db"), content());
  EXPECT_EQ(db({"use", "9", site}).exit_code, 2);
  EXPECT_EQ(db({"use", site, site}).exit_code, 2);
  EXPECT_EQ(db({"use", next, here.file("site.jsonl")}).exit_code, 2);
}

TEST_F(DatabaseOperations, AHistoryIsBoundedAndGrowsByMergesOntoItsDatabase) {
  const std::string site = here.file("site.db");
  for (int i = 1; i <= 4; ++i) {
    DatabaseContent one = content();
    one.decisions[0].row.created = i;
    write_database_file(here.file("next.db"), one);
    ASSERT_EQ(db({"use", here.file("next.db"), site, "--keep", "3"}).exit_code, 0);
  }
  nlohmann::json history = db({"history", site, "-o", "json"}).json();
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history.at(0).at("generation"), 2);
  EXPECT_EQ(history.at(2).at("state"), "in use");
  fs::copy_file(here.database(), here.file("mine.db"));
  ASSERT_EQ(db({"merge", here.file("mine.db"), "--output", site}).exit_code, 0);
  history = db({"history", site, "-o", "json"}).json();
  ASSERT_EQ(history.size(), 4U);
  EXPECT_EQ(history.at(3).at("generation"), 5);
  EXPECT_EQ(history.at(3).at("state"), "in use");
}

TEST_F(DatabaseOperations, ADamagedFileIsNeverPutInPlace) {
  const std::string site = here.file("site.db"), next = here.file("next.db");
  write_database_file(site, content());
  write_database_file(next, content());
  raw_sql(next, "UPDATE decision SET median_ps = median_ps + 1");
  const Outcome outcome = db({"use", next, site});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("damaged rows"));
  EXPECT_EQ(content("site.db"), content());
  std::ofstream(next) << "a letter";
  EXPECT_EQ(db({"use", next, site}).exit_code, 4);
}

TEST_F(DatabaseOperations, StatsCountRowsByOpAndDevice) {
  const nlohmann::json stats = db({"stats", "-o", "json"}).json();
  ASSERT_EQ(stats.size(), 2U);
  EXPECT_EQ(stats.at(0).at("decisions"), 2);
  EXPECT_EQ(stats.at(1).at("op"), "recurrent_attention");
  EXPECT_EQ(stats.at(1).at("device_class"), cpu_device().info().device_class);
  EXPECT_GE(stats.at(1).at("speedup_mean"), 1.0);
  EXPECT_GT(stats.at(1).at("trials"), 0);
}

}  // namespace
}  // namespace attune::test
