// Merging databases, and changing one as a whole.
#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <attune/cache/config_database.hpp>

#include "child_process.hpp"
#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::sample_key;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;
using test::sample_trial;
using Mode = ConfigDatabase::Mode;

/// Few values a field, so that ties of every depth occur.
ConfigRow any_row(std::int64_t key) {
  ConfigRow row = sample_row(key);
  const auto few = [] { return *rc::gen::inRange<std::int64_t>(1, 4); };
  row.kernel_version = few();
  row.config = str("unroll=", few());
  row.median_us = static_cast<double>(few());
  row.default_us = static_cast<double>(few());
  row.samples = few();
  row.created = few();
  row.noise = static_cast<NoiseGrade>(few() - 1);
  row.library_version = str("0.", 8 + few(), ".0");
  return row;
}

/// Distinct keys out of a few.
std::vector<std::int64_t> any_keys() {
  constexpr int kKeys = 6;
  const int some = *rc::gen::inRange(0, 1 << kKeys);
  std::vector<std::int64_t> keys;
  for (int key = 0; key < kKeys; ++key) {
    if ((some >> key & 1) != 0) keys.push_back(key);
  }
  return keys;
}

DatabaseContent any_content() {
  DatabaseContent content;
  for (const std::int64_t key : any_keys()) {
    StoredDecision decision{any_row(key), {}};
    for (const std::int64_t trial : any_keys()) {
      decision.trials.push_back(sample_trial(trial));
      decision.trials.back().key = decision.row.key;
    }
    content.decisions.push_back(std::move(decision));
  }
  for (const std::int64_t key : any_keys()) {
    content.pins.push_back(sample_pin(key));
    content.pins.back().created = *rc::gen::inRange<std::int64_t>(0, 3);
    content.pins.back().config = str("unroll=", *rc::gen::inRange(1, 3));
  }
  for (const std::int64_t key : any_keys()) {
    content.quarantine.push_back(sample_quarantine(key));
    content.quarantine.back().created = *rc::gen::inRange<std::int64_t>(0, 3);
  }
  content.sort();
  return content;
}

RC_GTEST_PROP(Merge, IsCommutative, ()) {
  const DatabaseContent a = any_content();
  const DatabaseContent b = any_content();
  RC_ASSERT(merge(a, b) == merge(b, a));
}

RC_GTEST_PROP(Merge, IsAssociative, ()) {
  const DatabaseContent a = any_content();
  const DatabaseContent b = any_content();
  const DatabaseContent c = any_content();
  RC_ASSERT(merge(merge(a, b), c) == merge(a, merge(b, c)));
}

RC_GTEST_PROP(Merge, IsIdempotentAndEmptyAddsNothing, ()) {
  const DatabaseContent a = any_content();
  const DatabaseContent b = any_content();
  RC_ASSERT(merge(a, a) == a);
  RC_ASSERT(merge(merge(a, b), b) == merge(a, b));
  RC_ASSERT(merge(a, {}) == a);
}

RC_GTEST_PROP(Merge, KeepsEveryKeyAndNoDecisionThatNobodyStored, ()) {
  const DatabaseContent a = any_content();
  const DatabaseContent b = any_content();
  const DatabaseContent merged = merge(a, b);
  std::set<RowKey> keys;
  for (const DatabaseContent* from : {&a, &b}) {
    for (const StoredDecision& decision : from->decisions) keys.insert(decision.row.key);
  }
  RC_ASSERT(merged.decisions.size() == keys.size());
  for (const StoredDecision& decision : merged.decisions) {
    const auto in = [&](const DatabaseContent& from) {
      return std::count(from.decisions.begin(), from.decisions.end(), decision) > 0;
    };
    RC_ASSERT(in(a) || in(b));
  }
}

TEST(Merge, GoesByTheSpeedUpWithinASessionAndNeverByTheTime) {
  ConfigRow slow_machine = sample_row(0);
  slow_machine.median_us = 300;
  slow_machine.default_us = 600;
  ConfigRow fast_machine = sample_row(0);
  fast_machine.median_us = 10;
  fast_machine.default_us = 11;
  EXPECT_TRUE(outranks(slow_machine, fast_machine));
  EXPECT_FALSE(outranks(fast_machine, slow_machine));
}

TEST(Merge, PrefersQuietSessionsThenNewerLibrariesToSpeedUp) {
  ConfigRow plain = sample_row(0);
  ConfigRow noisy = plain;
  noisy.noise = NoiseGrade::kC;
  noisy.default_us *= 10;
  EXPECT_TRUE(outranks(plain, noisy));
  ConfigRow older = plain;
  older.library_version = "0.0.9";
  older.default_us *= 10;
  EXPECT_TRUE(outranks(plain, older));
  ConfigRow newer = plain;
  newer.library_version = "0.10.0";
  newer.default_us = newer.median_us;
  EXPECT_TRUE(outranks(newer, plain)) << "by number, not by letter";
}

TEST(Merge, CarriesTheWinnersWholeProvenance) {
  DatabaseContent a;
  a.decisions.push_back({sample_row(0), {sample_trial(0), sample_trial(1)}});
  DatabaseContent b;
  b.decisions.push_back({sample_row(0), {sample_trial(2)}});
  b.decisions[0].row.default_us *= 2;
  EXPECT_EQ(merge(a, b).decisions.at(0), b.decisions.at(0));
}

class Edit : public ::testing::Test {
 protected:
  Edit() {
    const TrialRow trials[] = {sample_trial(0), sample_trial(1)};
    for (std::int64_t i = 0; i < 5; ++i) db.put(sample_row(i), trials);
    db.pin(sample_pin(1));
    db.quarantine(sample_quarantine(2));
  }
  test::TemporaryFolder folder;
  std::string path = folder.file("attune.db");
  ConfigDatabase db{path, Mode::kReadWrite};
};

TEST_F(Edit, ContentIsEverythingInTheOrderOfKeys) {
  const DatabaseContent content = db.content();
  ASSERT_EQ(content.decisions.size(), 5U);
  EXPECT_TRUE(std::is_sorted(
      content.decisions.begin(), content.decisions.end(),
      [](const StoredDecision& a, const StoredDecision& b) { return a.row.key < b.row.key; }));
  EXPECT_EQ(content.decisions[3].row, sample_row(3));
  ASSERT_EQ(content.decisions[3].trials.size(), 2U);
  TrialRow second = sample_trial(1);
  second.key = sample_key(3);
  EXPECT_EQ(content.decisions[3].trials[1], second);
  EXPECT_EQ(content.pins, std::vector{sample_pin(1)});
  EXPECT_EQ(content.quarantine, std::vector{sample_quarantine(2)});
}

TEST_F(Edit, StoresWhatWasChangedAddedAndRemoved) {
  DatabaseContent wanted;
  db.edit([&](DatabaseContent& all) {
    all.decisions.erase(all.decisions.begin());
    all.decisions[0].row.config = "unroll=2";
    all.decisions[1].trials.pop_back();
    all.decisions.push_back({sample_row(9), {}});
    all.pins.clear();
    all.quarantine.push_back(sample_quarantine(7));
    wanted = all;
  });
  wanted.sort();
  EXPECT_EQ(db.content(), wanted);
  EXPECT_TRUE(db.verify().ok()) << "no trial is left without its decision";
}

TEST_F(Edit, ChangesNothingWhenItFails) {
  const DatabaseContent before = db.content();
  EXPECT_THROW(db.edit([](DatabaseContent& all) {
    all.pins.clear();
    throw CacheError("no");
  }),
               CacheError);
  EXPECT_THROW(db.edit([](DatabaseContent& all) {
    all.decisions.clear();
    all.quarantine[0].config = "a\nb";
  }),
               InvalidArgument);
  EXPECT_THROW(db.edit([](DatabaseContent& all) { all.pins.push_back(all.pins[0]); }),
               InvalidArgument);
  EXPECT_EQ(db.content(), before);
}

TEST_F(Edit, KeepsBadRowsUnlessToldToRemoveThem) {
  test::raw_sql(path, "UPDATE decision SET samples = samples + 1 WHERE problem LIKE 'rows=102 %'");
  const auto nothing = [](DatabaseContent&) {};
  db.edit(nothing);
  EXPECT_EQ(db.content().bad_rows, 1);
  db.edit(nothing, ConfigDatabase::BadRows::kRemove);
  EXPECT_EQ(db.content().bad_rows, 0);
  EXPECT_EQ(db.content().decisions.size(), 4U);
  EXPECT_TRUE(db.verify().ok());
}

TEST_F(Edit, ThatRemovesMuchGivesBackTheRoom) {
  for (int i = 100; i < 400; ++i) db.put(sample_row(i));
  const auto full = std::filesystem::file_size(path);
  const auto keep_two = [](DatabaseContent& all) { all.decisions.resize(2); };
  db.edit(keep_two, ConfigDatabase::BadRows::kRemove);
  EXPECT_LT(std::filesystem::file_size(path), full / 2);
  EXPECT_EQ(db.content().decisions.size(), 2U);
  EXPECT_TRUE(db.verify().ok());
  db.put(sample_row(500));
  EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).content().decisions.size(), 3U);
}

TEST_F(Edit, AmongWritingProcessesLosesNothing) {
  constexpr int kProcesses = 4;
  constexpr int kEdits = 5;
  EXPECT_EQ(test::in_children(kProcesses,
                              [&](int process) {
                                ConfigDatabase own(path, Mode::kReadWrite);
                                for (int i = 0; i < kEdits; ++i) {
                                  own.edit([&](DatabaseContent& all) {
                                    const std::int64_t key = 100 + process * kEdits + i;
                                    all.decisions.push_back({sample_row(key), {}});
                                  });
                                }
                                return true;
                              }),
            kProcesses);
  EXPECT_EQ(db.content().decisions.size(), 5U + kProcesses * kEdits);
}

}  // namespace
}  // namespace attune
