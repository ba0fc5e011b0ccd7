// What is put into a database comes out of it, and nothing else goes in.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::raw_sql;
using test::sample_key;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;
using test::sample_trial;
using test::text_of;
using Mode = ConfigDatabase::Mode;

class Rows : public ::testing::Test {
 protected:
  ConfigSnapshot read_again() { return ConfigDatabase(path, Mode::kReadOnly).read(); }

  test::TemporaryFolder folder;
  std::string path = folder.file("attune.db");
  ConfigDatabase db{path, Mode::kReadWrite};
};

TEST_F(Rows, OfDecisionsKeepEveryColumn) {
  for (std::int64_t i = 0; i < 20; ++i) db.put(sample_row(i));
  const ConfigSnapshot snapshot = read_again();
  EXPECT_EQ(snapshot.bad_rows, 0);
  ASSERT_EQ(snapshot.rows.size(), 20U);
  for (std::int64_t i = 0; i < 20; ++i) {
    const ConfigRow* row = snapshot.find(sample_key(i));
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(text_of(*row), text_of(sample_row(i)));
  }
}

TEST_F(Rows, KeepTheirExtremes) {
  ConfigRow row = sample_row(0);
  row.median_us = 1e-6;
  row.default_us = 1e9;
  row.spread = 0;
  row.error = 1e300;
  row.samples = std::numeric_limits<std::int64_t>::max();
  row.config = row.toolkit = row.device_name = row.default_config = "";
  row.key.problem = std::string(2048, 'p');
  db.put(row);
  EXPECT_EQ(text_of(read_again().rows.at(0)), text_of(row));
}

TEST_F(Rows, ReplaceWhatTheirKeyHad) {
  const TrialRow trials[] = {sample_trial(0), sample_trial(1), sample_trial(2)};
  db.put(sample_row(0), trials);
  ConfigRow changed = sample_row(0);
  changed.config = "unroll=8";
  db.put(changed, std::span(trials).first(1));
  const ConfigSnapshot snapshot = read_again();
  ASSERT_EQ(snapshot.rows.size(), 1U);
  EXPECT_EQ(snapshot.rows[0].config, "unroll=8");
  EXPECT_EQ(db.trials(sample_key(0)).size(), 1U);
}

TEST_F(Rows, OfTrialsComeBackInOrderUnderTheirKey) {
  std::vector<TrialRow> trials;
  for (std::int64_t i = 0; i < 12; ++i) {
    trials.push_back(sample_trial(i));
    trials.back().key = sample_key(0);
  }
  trials[3].error = std::numeric_limits<double>::infinity();
  db.put(sample_row(0), trials);
  db.put(sample_row(1));
  const std::vector<TrialRow> read = ConfigDatabase(path, Mode::kReadOnly).trials(sample_key(0));
  ASSERT_EQ(read.size(), trials.size());
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(text_of(read[i]), text_of(trials[i]));
  EXPECT_TRUE(db.trials(sample_key(1)).empty());
}

TEST_F(Rows, AreErasedWithTheirTrials) {
  const TrialRow trials[] = {sample_trial(0)};
  db.put(sample_row(0), trials);
  EXPECT_TRUE(db.erase(sample_key(0)));
  EXPECT_FALSE(db.erase(sample_key(0)));
  EXPECT_TRUE(read_again().rows.empty());
  EXPECT_TRUE(db.trials(sample_key(0)).empty());
}

TEST_F(Rows, OfPinsHoldUntilTheyExpire) {
  PinRow pin = sample_pin(0);
  pin.expires = 2000;
  db.pin(pin);
  db.pin(sample_pin(1));
  const ConfigSnapshot snapshot = read_again();
  ASSERT_NE(snapshot.find_pin(sample_key(0), 1999), nullptr);
  EXPECT_EQ(text_of(*snapshot.find_pin(sample_key(0), 1999)), text_of(pin));
  EXPECT_EQ(snapshot.find_pin(sample_key(0), 2000), nullptr);
  EXPECT_NE(snapshot.find_pin(sample_key(1), 1'900'000'000'000), nullptr) << "0 is never";
  EXPECT_EQ(snapshot.find_pin(sample_key(2), 0), nullptr);
  EXPECT_TRUE(db.unpin(sample_key(0)));
  EXPECT_FALSE(db.unpin(sample_key(0)));
  EXPECT_EQ(read_again().pins.size(), 1U);
}

TEST_F(Rows, OfQuarantineHoldForOneProblemOrAll) {
  QuarantineRow one = sample_quarantine(1);
  one.problem = sample_key(5).problem;
  db.quarantine(sample_quarantine(0));
  db.quarantine(one);
  db.quarantine(one);
  const ConfigSnapshot snapshot = read_again();
  ASSERT_EQ(snapshot.quarantine.size(), 2U);
  const auto find = [&](std::int64_t i, const std::string& config, std::int64_t version = 3) {
    return snapshot.find_quarantine(sample_key(i), "simd.row_softmax.blocked", version, config);
  };
  ASSERT_NE(find(5, "unroll=0"), nullptr);
  EXPECT_EQ(text_of(*find(5, "unroll=0")), text_of(sample_quarantine(0)));
  ASSERT_NE(find(5, "unroll=1"), nullptr);
  EXPECT_EQ(text_of(*find(5, "unroll=1")), text_of(one));
  EXPECT_EQ(find(6, "unroll=1"), nullptr);
  EXPECT_EQ(find(5, "unroll=0", 4), nullptr) << "a later version may be mended";
  EXPECT_EQ(find(5, "unroll=2"), nullptr);
}

TEST_F(Rows, OfABucketAreFoundInTheOrderOfTheirKeys) {
  for (const std::int64_t i : {7, 1, 3}) db.put(sample_row(i));
  ConfigRow elsewhere = sample_row(4);
  elsewhere.bucket = "rows=256 cols=64 dtype=f32";
  db.put(elsewhere);
  ConfigRow other_platform = sample_row(5);
  other_platform.key.platform = "simd";
  db.put(other_platform);
  const ConfigSnapshot snapshot = read_again();
  const auto found = snapshot.find_bucket(sample_key(1), sample_row(1).bucket);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0]->key, sample_key(1));
  EXPECT_EQ(found[1]->key, sample_key(3));
  EXPECT_EQ(found[2]->key, sample_key(7));
}

TEST_F(Rows, WithAReasonOfManyLinesAreKept) {
  TrialRow trial = sample_trial(0);
  trial.reason = "first line\nsecond \x1b[1mline\x1b[0m " + std::string(5000, 'x');
  db.put(sample_row(0), std::span(&trial, 1));
  const std::string kept = db.trials(sample_key(0)).at(0).reason;
  EXPECT_TRUE(kept.starts_with("first line?second ?[1mline?[0m xxx")) << kept.substr(0, 60);
  EXPECT_EQ(kept.size(), 1024U);
}

TEST_F(Rows, ThatMayNotBeStoredAreRefusedByName) {
  const auto refused = [&](auto change) {
    ConfigRow row = sample_row(0);
    change(row);
    try {
      db.put(row);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("stored");
  };
  EXPECT_NE(refused([](ConfigRow& r) { r.key.op = ""; }).find("op: empty"), std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.config = "a\nb"; }).find("config: a control"),
            std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.config = "\xff"; }).find("config: not UTF-8"),
            std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.config.resize(4097, 'x'); }).find("config: 4097"),
            std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.median_us = 0; }).find("median_ps"), std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.default_us = std::nan(""); }).find("default_ps"),
            std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.error = INFINITY; }).find("error"), std::string::npos);
  EXPECT_NE(refused([](ConfigRow& r) { r.samples = -1; }).find("samples"), std::string::npos);
  EXPECT_TRUE(read_again().rows.empty());
}

TEST_F(Rows, AreNotConfusedByKeysThatJoinToTheSameText) {
  RowKey forged = sample_key(0);
  forged.device_class = "cpu avx2 cores=8\nauto";
  EXPECT_THROW(db.erase(forged), InvalidArgument);
}

// Rows that attune would never write, put there with the checksum of none: each is left out, and
// said so.
TEST_F(Rows, OfAnotherHandAreLeftOutAndCounted) {
  for (std::int64_t i = 0; i < 4; ++i) db.put(sample_row(i));
  raw_sql(path, "UPDATE decision SET median_ps = 1 WHERE problem LIKE 'rows=100 %'");
  raw_sql(path, "UPDATE decision SET key_hash = zeroblob(16) WHERE problem LIKE 'rows=101 %'");
  raw_sql(path,
          "PRAGMA ignore_check_constraints=ON; "
          "UPDATE decision SET error = 9e999 WHERE problem LIKE 'rows=102 %'");
  const ConfigSnapshot snapshot = read_again();
  ASSERT_EQ(snapshot.rows.size(), 1U);
  EXPECT_EQ(text_of(snapshot.rows[0]), text_of(sample_row(3)));
  EXPECT_EQ(snapshot.bad_rows, 3);
  EXPECT_EQ(snapshot.bad_reasons.size(), 3U);
  EXPECT_EQ(db.verify().bad_rows, 3);
  EXPECT_FALSE(db.verify().ok());
}

TEST_F(Rows, ThatAreBadDoNotFillMemoryWithReasons) {
  for (std::int64_t i = 0; i < 120; ++i) db.put(sample_row(i));
  raw_sql(path, "UPDATE decision SET samples = 0");
  const ConfigSnapshot snapshot = read_again();
  EXPECT_EQ(snapshot.bad_rows, 120);
  EXPECT_EQ(snapshot.bad_reasons.size(), 100U);
}

TEST_F(Rows, OfASoundFileVerify) {
  const TrialRow trials[] = {sample_trial(0), sample_trial(1)};
  db.put(sample_row(0), trials);
  db.pin(sample_pin(0));
  db.quarantine(sample_quarantine(0));
  const Verification found = db.verify();
  EXPECT_TRUE(found.ok()) << (found.problems.empty() ? found.error : found.problems[0]);
  EXPECT_EQ(found.rows, 1);
  EXPECT_EQ(found.schema_version, ConfigDatabase::kSchemaVersion);
}

TEST_F(Rows, OfTrialsWithoutADecisionAreAProblem) {
  const TrialRow trials[] = {sample_trial(0)};
  db.put(sample_row(0), trials);
  raw_sql(path, "DELETE FROM decision");
  EXPECT_EQ(db.verify().problems, std::vector<std::string>{"trial: 1 row without a decision"});
}

}  // namespace
}  // namespace attune
