// Databases as text: nothing is lost either way, and nothing half read.
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::sample_content;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;
using test::sample_trial;
using ::testing::HasSubstr;
using Format = DatabaseFormat;

std::string text_of(const DatabaseContent& content, Format format) {
  std::ostringstream out;
  write_database_text(content, format, out);
  return out.str();
}

DatabaseContent read(const std::string& text, Format format) {
  std::istringstream in(text);
  return read_database_text(in, format, "rows");
}

std::string error_of(const std::string& text, Format format = Format::kJsonl) {
  try {
    read(text, format);
    return "";
  } catch (const CacheError& error) {
    return error.what();
  }
}

class BothWays : public ::testing::TestWithParam<Format> {};

TEST_P(BothWays, LosesNothing) {
  const DatabaseContent content = sample_content();
  const std::string text = text_of(content, GetParam());
  EXPECT_EQ(read(text, GetParam()), content);
  EXPECT_EQ(text_of(read(text, GetParam()), GetParam()), text);
  EXPECT_EQ(read(text_of({}, GetParam()), GetParam()), DatabaseContent());
}

TEST_P(BothWays, ThroughADatabaseLosesNothing) {
  const test::TemporaryFolder folder;
  const DatabaseContent content = sample_content();
  write_database_file(folder.file("a.db"), content);
  const std::string text = text_of(read_database_file(folder.file("a.db")), GetParam());
  EXPECT_EQ(text, text_of(content, GetParam()));
  write_database_file(folder.file("b.db"), read(text, GetParam()));
  EXPECT_EQ(read_database_file(folder.file("b.db")), content);
}

INSTANTIATE_TEST_SUITE_P(Text, BothWays, ::testing::Values(Format::kJsonl, Format::kCsv));

/// Texts with every character that a format must escape.
std::string any_text(const std::string& least) {
  return least + *rc::gen::container<std::string>(rc::gen::element('a', '"', ',', '\\', ' ', '\'',
                                                                   '#', ';', '{', '}', '/', '='));
}

RC_GTEST_PROP(DatabaseText, KeepsEveryCharacterAndBit, ()) {
  DatabaseContent content;
  ConfigRow row = sample_row(0);
  row.key.problem = any_text("");
  row.kernel = any_text("k");
  row.config = any_text("");
  row.device_name = any_text("") + "α\xF0\x9F\x8E\xB5";
  row.spread = *rc::gen::map(rc::gen::arbitrary<double>(), [](double x) { return std::abs(x); });
  row.median_us = static_cast<double>(*rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000)) / 1e6;
  row.samples = *rc::gen::inRange<std::int64_t>(0, std::numeric_limits<std::int64_t>::max());
  if (!(row.spread <= 1e300)) row.spread = 0;
  content.decisions.push_back({row, {}});
  for (const Format format : {Format::kJsonl, Format::kCsv}) {
    RC_ASSERT(read(text_of(content, format), format) == content);
  }
}

TEST(DatabaseText, SkipsCommentsAndEmptyLines) {
  const DatabaseContent content = sample_content();
  const std::string text = "# H200, driver 580\n\n" + text_of(content, Format::kJsonl) + "\n";
  EXPECT_EQ(read(text, Format::kJsonl), content);
}

TEST(DatabaseText, NamesTheLineAndTheColumn) {
  const std::string good = text_of(sample_content(), Format::kJsonl);
  const auto with = [&](const std::string& line) { return error_of(good + line + "\n"); };
  const auto lines = std::count(good.begin(), good.end(), '\n');
  EXPECT_THAT(with("{"), HasSubstr(str("rows:", lines + 1, ": not JSON")));
  EXPECT_THAT(with("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(with("{\"table\":\"lease\"}"), HasSubstr("table: 'lease', expected decision"));
  EXPECT_THAT(with("{\"op\":\"x\"}"), HasSubstr("table: is missing"));
  EXPECT_THAT(with("{\"table\":\"pin\",\"op\":3}"), HasSubstr("op: of another type"));
  EXPECT_THAT(with("{\"table\":\"pin\",\"op\":\"a\",\"op\":\"b\"}"),
              HasSubstr("op: is given twice"));
  EXPECT_THAT(with("{\"table\":\"pin\",\"op\":{\"a\":[]}}"), HasSubstr("texts and numbers only"));
  EXPECT_THAT(with(std::string(300'000, ' ')), HasSubstr("longer than"));
  EXPECT_THAT(error_of(good + good), HasSubstr("two rows of decision have the same key"));
}

TEST(DatabaseText, NamesTheLineWhereARowIsRepeated) {
  DatabaseContent content;
  content.pins = {sample_pin(0), sample_pin(1)};
  content.quarantine = {sample_quarantine(0)};
  for (const Format format : {Format::kJsonl, Format::kCsv}) {
    const std::string text = text_of(content, format);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    const std::size_t last = text.rfind('\n', text.size() - 2) + 1;
    const std::string repeated = text.substr(last);
    EXPECT_THAT(error_of(text + repeated, format),
                HasSubstr(str("rows:", lines + 1, ": two rows of quarantine have the same key: ")));
    // What stands between does not matter, nor what follows.
    EXPECT_THAT(error_of(text + repeated + "\n\n" + repeated, format),
                HasSubstr(str("rows:", lines + 1, ": two rows")));
    content.quarantine[0].reason = "another";
    const std::string other = text_of(content, format).substr(last);
    EXPECT_THAT(error_of(text + other, format), HasSubstr(str("rows:", lines + 1, ": two rows")));
  }
}

TEST(DatabaseText, MayBeginWithAByteOrderMark) {
  const DatabaseContent content = sample_content();
  for (const Format format : {Format::kJsonl, Format::kCsv}) {
    EXPECT_EQ(read("\xef\xbb\xbf" + text_of(content, format), format), content);
  }
  EXPECT_EQ(read("\xef\xbb\xbf# a comment\n" + text_of(content, Format::kJsonl), Format::kJsonl),
            content);
}

TEST(DatabaseText, RefusesValuesThatMayNotBeStored) {
  DatabaseContent content;
  content.pins = {sample_pin(0)};
  const std::string line = text_of(content, Format::kJsonl);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << line;
    return error_of(changed.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("\"expires\":0", "\"expires\":-1"),
              HasSubstr("rows:1: expires: -1, expected 0"));
  EXPECT_THAT(with("\"expires\":0", "\"expires\":18446744073709551615"), HasSubstr("expires"));
  EXPECT_THAT(with("\"expires\":0", "\"expires\":0.5"), HasSubstr("expires: of another type"));
  EXPECT_THAT(with("\"expires\":0", "\"expires\":0,\"expired\":1"), HasSubstr("expired: no such"));
  EXPECT_THAT(with("row_softmax", "row\\nsoftmax"), HasSubstr("op: a control character"));
}

TEST(DatabaseText, RefusesATrialWithoutItsDecisionAndOneGivenTwice) {
  DatabaseContent content = sample_content();
  const std::string text = text_of(content, Format::kJsonl);
  std::istringstream lines(text);
  std::string decision;
  std::string trial;
  std::getline(lines, decision);
  std::getline(lines, trial);
  EXPECT_THAT(error_of(trial + "\n"), HasSubstr("rows:1: a trial without its decision"));
  EXPECT_THAT(error_of(decision + "\n" + trial + "\n" + trial + "\n"),
              HasSubstr("rows:3: position: 0 is given twice"));
  EXPECT_EQ(error_of(trial + "\n" + decision + "\n"), "") << "the order does not matter";
}

TEST(DatabaseText, CsvNamesTheLineAndTheColumn) {
  const std::string good = text_of(sample_content(), Format::kCsv);
  const std::string header = good.substr(0, good.find('\n') + 1);
  EXPECT_THAT(error_of("table,colour\r\n", Format::kCsv), HasSubstr("rows:1: header: no column"));
  EXPECT_THAT(error_of("table,op,op\r\n", Format::kCsv), HasSubstr("'op' stands twice"));
  EXPECT_THAT(error_of(header + "pin,x\r\n", Format::kCsv),
              HasSubstr("rows:2: 2 fields, expected"));
  EXPECT_THAT(error_of(header + "\"pin\r\n", Format::kCsv), HasSubstr("a quote is not closed"));
  EXPECT_THAT(error_of(header + "\"pin\"x\r\n", Format::kCsv), HasSubstr("after a closing quote"));
  DatabaseContent content;
  content.quarantine = {sample_quarantine(0)};
  std::string with_expiry = text_of(content, Format::kCsv);
  with_expiry.insert(with_expiry.rfind("\r\n"), "7");
  EXPECT_THAT(error_of(with_expiry, Format::kCsv),
              HasSubstr("rows:2: expires: the row's table has no such column"));
}

}  // namespace
}  // namespace attune
