#include "output/text.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attune::cli {
namespace {

using ::testing::ElementsAre;

TEST(Text, OfSeveralLinesGoesOnOneLine) {
  EXPECT_EQ(in_one_line("none fits:\n  a: too wide\n  b: too long\n"),
            "none fits: a: too wide; b: too long");
  EXPECT_EQ(in_one_line("as it is"), "as it is");
  EXPECT_EQ(in_one_line(""), "");
}

TEST(Text, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(printable("a\x1b[31mb\n\t\x7f"), "a\\x1b[31mb\\n\\t\\x7f");
  EXPECT_EQ(printable("C1: \xc2\x9b"), "C1: \\xc2\\x9b");
  EXPECT_EQ(printable("café 日本"), "café 日本");
}

TEST(Text, WidthCountsCodePoints) {
  EXPECT_EQ(display_width("café"), 4U);
  EXPECT_EQ(pad_right("café", 6), "café  ");
  EXPECT_EQ(pad_left("café", 6), "  café");
  EXPECT_EQ(pad_left("longer", 3), "longer");
}

TEST(Text, ShortensOnlyWhatIsTooLong) {
  EXPECT_EQ(shorten("exactly10!", 10), "exactly10!");
  EXPECT_EQ(shorten("longer than ten", 10), "longer ...");
  EXPECT_EQ(shorten("ééééééé", 6), "ééé...");
}

TEST(Text, NumbersHaveFourDigits) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(118.34), "118.3");
  EXPECT_EQ(number_text(52310.4), "52310");
  EXPECT_EQ(number_text(0.41234), "0.4123");
  EXPECT_EQ(number_text(0.016532), "0.01653");
  EXPECT_EQ(number_text(3.1e-6), "3.1e-06");
  EXPECT_EQ(number_text(-2.5), "-2.500");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(number_text(std::nan("")), "nan");
}

TEST(Text, TimesAreReadable) {
  EXPECT_EQ(elapsed_text(0.25), "250 ms");
  EXPECT_EQ(elapsed_text(12.4), "12 s");
  EXPECT_EQ(elapsed_text(190), "3m10s");
  EXPECT_EQ(elapsed_text(7500), "2h05m");
  EXPECT_EQ(date_text(1'700'000'000), "2023-11-14 22:13 UTC");
  EXPECT_EQ(date_text(0), "");
}

TEST(Text, WrapsAtSpacesAndKeepsLongWordsWhole) {
  EXPECT_THAT(wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("a-word-longer-than-that b", 5), ElementsAre("a-word-longer-than-that", "b"));
  EXPECT_THAT(wrap("", 5), ElementsAre(""));
}

}  // namespace
}  // namespace attune::cli
