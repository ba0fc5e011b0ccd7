// The parts of the format that every file depends on: what may be stored, and how rows are summed
// and hashed.
#include "rows/row_cells.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "rows/row_tables.hpp"
#include "sample_rows.hpp"

namespace attune {
namespace {

using test::sample_row;

std::string text_problem(const std::string& value) {
  return violation(Column{"config", ColumnKind::kText, 1, 16}, Cell(value));
}

TEST(RowCells, TakeUtf8WithinTheirBounds) {
  for (const char* text : {"a", "tile=64,x=2", "0123456789abcdef", "\xc3\xbc", "\xe2\x82\xac",
                           "\xf0\x9f\x98\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(text_problem(text), "") << text;
  }
}

TEST(RowCells, RefuseTextThatIsEmptyTooLongOrNotUtf8) {
  EXPECT_EQ(text_problem(""), "config: empty");
  EXPECT_EQ(text_problem("0123456789abcdefg"), "config: 17 bytes, expected at most 16");
  for (const char* text : {"\x80", "\xc3", "\xc3(", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff", "a\xe2\x82"}) {
    EXPECT_EQ(text_problem(text), "config: not UTF-8") << text;
  }
}

TEST(RowCells, RefuseControlCharacters) {
  for (const std::string& text :
       {std::string("a\nb"), std::string("\x1b[31m"), std::string("a\0b", 3), std::string("\x7f"),
        std::string("\xc2\x9b")}) {
    EXPECT_EQ(text_problem(text), "config: a control character");
  }
}

TEST(RowCells, RefuseNumbersOutOfBounds) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(violation(count("noise", 2), Cell(std::int64_t{2})), "");
  EXPECT_NE(violation(count("noise", 2), Cell(std::int64_t{3})), "");
  EXPECT_NE(violation(count("samples"), Cell(std::int64_t{-1})), "");
  EXPECT_EQ(violation(finite("spread"), Cell(0.0)), "");
  EXPECT_NE(violation(finite("spread"), Cell(-1e-9)), "");
  EXPECT_NE(violation(finite("spread"), Cell(infinity)), "");
  EXPECT_NE(violation(finite("spread"), Cell(std::nan(""))), "");
  EXPECT_EQ(violation(maybe_infinite("error"), Cell(infinity)), "");
  EXPECT_NE(violation(maybe_infinite("error"), Cell(std::nan(""))), "");
}

TEST(RowCells, KeepTimesToThePicosecond) {
  const Column column = picoseconds("median_ps", 1);
  Cell cell = to_cell(column, 12.345678);
  EXPECT_EQ(std::get<std::int64_t>(cell), 12345678);
  double us = 0;
  from_cell(column, cell, us);
  EXPECT_EQ(us, 12.345678);
  for (const double illegal : {0.0, -1.0, 1e-9, 1e10, std::nan(""), 1e300}) {
    EXPECT_NE(violation(column, to_cell(column, illegal)), "") << illegal;
  }
}

TEST(RowCells, MakeFreeTextStorable) {
  EXPECT_EQ(storable("line one\nline\ttwo", 100), "line one?line?two");
  EXPECT_EQ(storable("\xff\xc3\xbc", 100), "?\xc3\xbc");
  EXPECT_EQ(storable("a\xe2\x82\xac", 3), "a") << "a character is not cut in two";
  EXPECT_EQ(storable("\xc2\x9bx", 100), "?x");
}

// These constants are the format: a change of them makes every file in the world unreadable.
TEST(RowCells, SumAndHashAsTheyAlwaysDid) {
  const std::string hash = key_hash("op\ndevice\nauto\nB=1 T=2");
  EXPECT_EQ(to_hex(hash), "210e03de51d66a9d9594b14e");
  const Cell cells[] = {std::string("text"), std::int64_t{-5}, 0.25};
  EXPECT_EQ(checksum("decision", hash, cells), -6441740476904822114);
  const Cell positive[] = {0.0};
  const Cell negative[] = {-0.0};
  EXPECT_EQ(checksum("t", hash, positive), checksum("t", hash, negative))
      << "SQLite does not keep the sign of zero";
}

TEST(RowCells, SumEveryPartOfARow) {
  const std::string hash = key_hash("key");
  const std::vector<Cell> cells = to_cells(sample_row(0));
  const std::int64_t sum = checksum("decision", hash, cells);
  EXPECT_NE(checksum("pin", hash, cells), sum);
  EXPECT_NE(checksum("decision", key_hash("other"), cells), sum);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<Cell> changed = cells;
    if (auto* text = std::get_if<std::string>(&changed[i])) *text += "x";
    if (auto* integer = std::get_if<std::int64_t>(&changed[i])) *integer += 1;
    if (auto* real = std::get_if<double>(&changed[i])) *real += 1;
    EXPECT_NE(checksum("decision", hash, changed), sum) << "cell " << i;
  }
  const Cell moved[] = {std::string("ab"), std::string("c")};
  const Cell other[] = {std::string("a"), std::string("bc")};
  EXPECT_NE(checksum("t", hash, moved), checksum("t", hash, other));
}

TEST(RowCells, TakeTheFirstAndTheLastCharacterOfEachLength) {
  for (const char* text : {" ", "~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80"}) {
    EXPECT_EQ(text_problem(text), "") << text;
    EXPECT_EQ(storable(text, 16), text);
  }
  for (const char* text : {"\x1f", "\x7f", "\xc2\x80", "\xc2\x9f"}) {
    EXPECT_EQ(text_problem(text), "config: a control character");
    EXPECT_EQ(storable(text, 16), "?");
  }
  for (const char* text : {"\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xbf"}) {
    EXPECT_EQ(text_problem(text), "config: not UTF-8");
  }
}

TEST(RowCells, TakeNumbersUpToTheirBounds) {
  EXPECT_EQ(violation(count("noise", 2), Cell(std::int64_t{0})), "");
  EXPECT_EQ(violation(finite("spread"), Cell(1e300)), "");
  EXPECT_NE(violation(finite("spread"), Cell(1.01e300)), "");
  EXPECT_EQ(violation(maybe_infinite("error"), Cell(1.01e300)), "");
}

TEST(RowCells, CutFreeTextWhereItIsFull) {
  EXPECT_EQ(storable("abcdef", 3), "abc");
  EXPECT_EQ(storable("ab\xc3\xbc", 4), "ab\xc3\xbc");
  EXPECT_EQ(storable("ab\xc3\xbc", 3), "ab");
  EXPECT_EQ(storable("abc", 0), "");
}

TEST(RowCells, AreReadAsWhatTheyAreAndNothingElse) {
  sqlite::Db db = sqlite::Db::in_memory();
  sqlite::Statement row(db, "SELECT 'text', 7, 0.5");
  ASSERT_TRUE(row.step());
  const Column columns[] = {{"text", ColumnKind::kText, 0, 9},
                            {"integer", ColumnKind::kInteger, 0, 9},
                            {"real", ColumnKind::kReal}};
  for (int column = 0; column < 3; ++column) {
    for (int value = 0; value < 3; ++value) {
      std::string problem;
      const Cell cell = read_cell(row, value, columns[column], problem);
      EXPECT_EQ(problem.empty(), column == value) << column << value;
      if (column == value) {
        EXPECT_EQ(cell.index(), static_cast<std::size_t>(column));
      }
    }
  }
}

}  // namespace
}  // namespace attune
