#include "output/table.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// Text with what each format finds hard.
const std::string kHard = "a,\"b\"|c\n\x1b[2Jd";

Document one_table() {
  Table table({"name", "median_us", "count", "ok", "nothing"});
  table.add({kHard, 118.25, 3, true, Cell()});
  table.add({"plain", 0.5, 12, false, Cell()});
  return {{.name = "", .table = std::move(table)}};
}

Document two_tables() {
  Table first({"name", "n"});
  first.add({"x", 1});
  Table second({"name", "reason"});
  second.add({"y", "because"});
  return {{.name = "first", .table = std::move(first)},
          {.name = "second", .table = std::move(second)}};
}

TEST(Table, RefusesARowOfAnotherLength) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add({"only one"}), std::logic_error);
}

TEST(Table, ForPeopleAlignsNumbersRightAndEscapes) {
  EXPECT_EQ(render(one_table(), Format::kTable),
            "name               median_us  count  ok   nothing\n"
            "a,\"b\"|c\\n\\x1b[2Jd      118.2      3  yes\n"
            "plain                 0.5000     12  no\n");
}

TEST(Table, WhatAllRowsShareMovesAboveATableThatIsTooWide) {
  Table table({"kernel", "config", "median_us"});
  table.add({"the.same", "a=1", 1.5}).add({"the.same", "a=2", 1.5});
  const Document document{{.name = "", .table = table}};
  EXPECT_EQ(render(document, Format::kTable, {.width = 20}),
            "kernel  the.same\n"
            "config  median_us\n"
            "a=1         1.500\n"
            "a=2         1.500\n");
  EXPECT_THAT(render(document, Format::kTable, {.width = 80}), HasSubstr("the.same  a=2"));
}

TEST(Table, RecordsLeaveEmptyCellsOut) {
  Document document = one_table();
  document[0].record = true;
  const std::string text = render(document, Format::kTable);
  EXPECT_THAT(text, HasSubstr("median_us  118.2\n"));
  EXPECT_THAT(text, Not(HasSubstr("nothing")));
}

TEST(Table, JsonKeepsTypesAndTheOrderOfColumns) {
  const std::string text = render(one_table(), Format::kJson);
  const json rows = json::parse(text);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["name"], kHard);
  EXPECT_EQ(rows[0]["median_us"], 118.25);
  EXPECT_TRUE(rows[0]["count"].is_number_integer());
  EXPECT_EQ(rows[1]["ok"], false);
  EXPECT_TRUE(rows[0]["nothing"].is_null());
  EXPECT_LT(text.find("median_us"), text.find("count"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Table, JsonOfNothingIsAnEmptyArray) {
  EXPECT_EQ(render({{.name = "", .table = Table({"a"})}}, Format::kJson), "[]\n");
  EXPECT_EQ(render({{.name = "", .table = Table({"a"})}}, Format::kJsonl), "");
}

TEST(Table, JsonSurvivesInfinityAndTextThatIsNotUtf8) {
  Table table({"x", "name"});
  table.add({std::numeric_limits<double>::infinity(), "\xff\xfe"});
  const json rows = json::parse(render({{.name = "", .table = table}}, Format::kJson));
  EXPECT_TRUE(rows[0]["x"].is_null());
  EXPECT_THAT(render({{.name = "", .table = table}}, Format::kCsv), HasSubstr("inf,"));
}

TEST(Table, JsonlIsOneObjectALine) {
  const std::string text = render(two_tables(), Format::kJsonl);
  const auto end = text.find('\n');
  EXPECT_EQ(json::parse(text.substr(0, end)),
            json::parse(R"({"section":"first","name":"x","n":1})"));
  EXPECT_EQ(json::parse(text.substr(end + 1)),
            json::parse(R"({"section":"second","name":"y","reason":"because"})"));
}

TEST(Table, CsvFollowsRfc4180) {
  EXPECT_EQ(render(one_table(), Format::kCsv),
            "name,median_us,count,ok,nothing\r\n"
            "\"a,\"\"b\"\"|c\n\x1b[2Jd\",118.25,3,yes,\r\n"
            "plain,0.5,12,no,\r\n");
}

TEST(Table, CsvOfSectionsHasTheUnionOfTheirColumns) {
  EXPECT_EQ(render(two_tables(), Format::kCsv),
            "section,name,n,reason\r\n"
            "first,x,1,\r\n"
            "second,y,,because\r\n");
}

TEST(Table, NothingSteersATerminalInAnyFormat) {
  for (const Format format :
       {Format::kTable, Format::kJson, Format::kJsonl, Format::kCsv, Format::kMd}) {
    EXPECT_THAT(render(one_table(), format, {.color = false, .terminal = true}),
                Not(HasSubstr("\x1b")));
  }
}

TEST(Table, MarkdownEscapesBarsAndAlignsNumbers) {
  EXPECT_EQ(render(one_table(), Format::kMd),
            "| name | median_us | count | ok | nothing |\n"
            "|---|---:|---:|---|---|\n"
            "| a,\"b\"\\|c\\\\n\\\\x1b\\[2Jd | 118.2 | 3 | yes |  |\n"
            "| plain | 0.5000 | 12 | no |  |\n");
}

TEST(Table, MarkdownOfACellIsTheTextItselfAndNoMarkup) {
  const auto in_a_cell = [](const std::string& text) {
    const std::string all = render({{.name = "", .table = Table({"x"}).add({text})}}, Format::kMd);
    const std::size_t begin = all.rfind("\n| ") + 3;
    return all.substr(begin, all.size() - begin - 3);
  };
  EXPECT_EQ(in_a_cell("<script>alert(1)</script>"), "&lt;script&gt;alert(1)&lt;/script&gt;");
  EXPECT_EQ(in_a_cell("a & b &lt; c"), "a &amp; b &amp;lt; c");
  EXPECT_EQ(in_a_cell("![x](http://y) [a]: b"), "!\\[x\\](http://y) \\[a\\]: b");
  EXPECT_EQ(in_a_cell("*a* `b` ~~c~~ _d_"), "\\*a\\* \\`b\\` \\~\\~c\\~\\~ \\_d\\_");
  EXPECT_EQ(in_a_cell("tile_v=4,gated_linear_attention"), "tile_v=4,gated_linear_attention");
  // A bar ends the cell unless the backslashes before it are an odd number.
  EXPECT_EQ(in_a_cell("a|b\\|c\\"), "a\\|b\\\\\\|c\\\\");
}

TEST(Table, ColorIsOnlyAddedToTablesForPeople) {
  Table table({"verdict"});
  table.add({Cell("miss", Tone::kBad)});
  const Document document{{.name = "", .table = table}};
  EXPECT_THAT(render(document, Format::kTable, {.color = true}), HasSubstr("\x1b[31mmiss"));
  EXPECT_THAT(render(document, Format::kJson, {.color = true}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(render(document, Format::kTable), Not(HasSubstr("\x1b")));
}

TEST(Format, KnowsItsNames) {
  EXPECT_EQ(parse_format("jsonl"), Format::kJsonl);
  EXPECT_THROW(parse_format("jso"), UsageError);
  EXPECT_THROW(parse_format(""), UsageError);
}

}  // namespace
}  // namespace attune::cli
