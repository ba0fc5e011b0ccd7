// Files that were right once. Whatever happened to them: no crash, and no row that nobody wrote.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/campaign.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::sample_key;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;
using test::sample_trial;
using test::text_of;
using test::texts_of;
using Mode = ConfigDatabase::Mode;

constexpr std::int64_t kRows = 50;

bool is_subset(const std::set<std::string>& part, const std::set<std::string>& whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    const std::string path = folder.file("sound.db");
    {
      ConfigDatabase db(path, Mode::kReadWrite);
      const TrialRow trials[] = {sample_trial(0), sample_trial(1)};
      for (std::int64_t i = 0; i < kRows; ++i) db.put(sample_row(i), trials);
      db.pin(sample_pin(3));
      db.quarantine(sample_quarantine(4));
    }
    ConfigDatabase db(path, Mode::kReadOnly);
    sound = db.read();
    sound_trials = texts_of(db.trials(sample_key(5)));
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }

  void write(const std::string& content) const {
    std::ofstream(damaged, std::ios::binary | std::ios::trunc) << content;
  }

  struct Result {
    bool opened = false;
    std::size_t rows = 0;
    std::int64_t bad_rows = 0;
    bool noticed = false;  // by verify()
  };

  /// Reads the damaged file; what it gives must be a part of what was written.
  Result read_damaged() const {
    Result result;
    try {
      const ConfigDatabase db(damaged, Mode::kReadOnly);
      const Verification verification = db.verify();
      const ConfigSnapshot snapshot = db.read();
      EXPECT_TRUE(is_subset(texts_of(snapshot.rows), texts_of(sound.rows)));
      EXPECT_TRUE(is_subset(texts_of(snapshot.pins), texts_of(sound.pins)));
      EXPECT_TRUE(is_subset(texts_of(snapshot.quarantine), texts_of(sound.quarantine)));
      EXPECT_TRUE(is_subset(texts_of(db.trials(sample_key(5))), sound_trials));
      EXPECT_TRUE(snapshot.bad_rows == 0 || !verification.ok());
      result = {true, texts_of(snapshot.rows).size(), snapshot.bad_rows, !verification.ok()};
    } catch (const CacheError&) {  // an answer as good as any
    }
    return result;
  }

  /// A writer that meets the damage may fail, or write; what is there afterwards is still true.
  void write_to_damaged(std::int64_t i) const {
    try {
      ConfigDatabase db(damaged, Mode::kReadWrite);
      db.put(sample_row(kRows + i));
      const std::set<std::string> read = texts_of(db.read().rows);
      std::set<std::string> possible = texts_of(sound.rows);
      possible.insert(text_of(sample_row(kRows + i)));
      EXPECT_TRUE(is_subset(read, possible));
    } catch (const CacheError&) {
    }
  }

  test::TemporaryFolder folder;
  std::string damaged = folder.file("damaged.db");
  std::string bytes;
  ConfigSnapshot sound;
  std::set<std::string> sound_trials;
};

TEST_F(Damage, OfNoKindLeavesEveryRow) {
  write(bytes);
  const Result result = read_damaged();
  EXPECT_EQ(result.rows, static_cast<std::size_t>(kRows));
  EXPECT_EQ(result.bad_rows, 0);
}

TEST_F(Damage, OfOneBitNeverShowsInARow) {
  const int rounds = test::campaign_length(200, 10'000);
  std::mt19937 random(20240607);
  int noticed = 0;
  int unusable = 0;
  std::size_t served = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::string changed = bytes;
    const std::size_t bit = random() % (8 * changed.size());
    changed[bit / 8] =
        static_cast<char>(static_cast<unsigned char>(changed[bit / 8]) ^ (1U << (bit % 8)));
    SCOPED_TRACE(str("bit ", bit));
    write(changed);
    const Result result = read_damaged();
    noticed += result.noticed ? 1 : 0;
    unusable += result.opened ? 0 : 1;
    served += result.rows;
    if (round % 10 == 0) write_to_damaged(round);
  }
  // Most of the file is rows, so most flips hit one and are noticed; few make the whole file
  // useless.
  EXPECT_GT(noticed, rounds / 4);
  EXPECT_LT(unusable, rounds / 10);
  EXPECT_GT(served, static_cast<std::size_t>(rounds * kRows * 8 / 10));
}

// A page in the middle is lost: the rows on both sides of it are still found.
TEST_F(Damage, OfAWholePageLeavesTheRowsAroundIt) {
  constexpr std::size_t kPage = 4096;
  int lost_some = 0;
  int lost_all = 0;
  for (std::size_t page = 1; page < bytes.size() / kPage; ++page) {
    SCOPED_TRACE(str("page ", page + 1));
    std::string changed = bytes;
    std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(page * kPage), kPage, '\xa5');
    write(changed);
    const Result result = read_damaged();
    EXPECT_TRUE(result.noticed || !result.opened);
    if (result.rows == 0) ++lost_all;
    if (result.rows == 0 || result.rows == kRows) continue;
    ++lost_some;
    EXPECT_GT(result.bad_rows, 0);
    EXPECT_GT(result.rows, 20U);
  }
  EXPECT_GT(lost_some, 2);
  EXPECT_LE(lost_all, 4) << "only the schema's pages and the root of the table lead to all";
}

TEST_F(Damage, OfTheEndNeverShowsInARow) {
  for (std::size_t size = 1; size < bytes.size(); size += 509) {
    SCOPED_TRACE(str(size, " bytes of ", bytes.size()));
    write(bytes.substr(0, size));
    read_damaged();
    write_to_damaged(static_cast<std::int64_t>(size));
  }
}

/// Overwrites a page, which begin with 1.
std::string with_damaged_page(std::string bytes, std::int64_t page, std::int64_t page_size) {
  return bytes.replace(static_cast<std::size_t>((page - 1) * page_size),
                       static_cast<std::size_t>(page_size),
                       std::string(static_cast<std::size_t>(page_size), '\x55'));
}

TEST_F(Damage, OfAnyPageOfTrialsLeavesTheRowsAndTheOtherTrials) {
  const std::string path = folder.file("sound.db");
  const std::int64_t page_size = test::raw_integer(path, "PRAGMA page_size");
  const std::int64_t root = test::raw_integer(
      path, "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'trial'");
  const auto pages = static_cast<std::int64_t>(bytes.size()) / page_size;
  std::size_t told = 0;
  std::size_t lost = 0;
  for (std::int64_t page = 2; page <= pages; ++page) {
    write(with_damaged_page(bytes, page, page_size));
    std::optional<ConfigDatabase> db;
    try {
      db.emplace(damaged, Mode::kReadOnly);
      if (texts_of(db->read().rows).size() != static_cast<std::size_t>(kRows)) continue;
    } catch (const CacheError&) {
      continue;  // a page of another table
    }
    SCOPED_TRACE(str("page ", page));
    for (std::int64_t i = 0; i < kRows; ++i) {
      std::vector<std::string> damage;
      const std::vector<TrialRow> trials = db->trials(sample_key(i), &damage);
      EXPECT_TRUE(trials.size() == 2 || !damage.empty()) << "what is left out is told of";
      EXPECT_TRUE(page != root || !damage.empty());
      told += damage.empty() ? 0 : 1;
      lost += 2 - trials.size();
    }
    EXPECT_TRUE(db->verify().readable);
  }
  EXPECT_GT(told, static_cast<std::size_t>(kRows)) << "the root and a leaf at least";
  EXPECT_GT(lost, 0U);
}

}  // namespace
}  // namespace attune
