// Named values as text, and which name somebody may have meant.
#include <gtest/gtest.h>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {
namespace {

std::string refusal(std::string_view text, char separator = ',') {
  try {
    parse_params(text, separator);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Params, SurviveTheirText) {
  const Params params = {{"a", "1"}, {"long_name", "x=y"}, {"c", "\xc3\xbc"}};
  for (const char separator : {',', ' '}) {
    EXPECT_EQ(parse_params(to_text(params, separator), separator), params);
  }
  EXPECT_EQ(to_text(params), "a=1,long_name=x=y,c=\xc3\xbc");
  EXPECT_EQ(to_text({}), "");
}

TEST(Params, HaveNoControlCharacters) {
  EXPECT_EQ(refusal("a=1\x1f"), "a name=value pair has a control character");
  EXPECT_EQ(refusal("a=1\x7f"), "a name=value pair has a control character");
  EXPECT_EQ(refusal("a=1\n"), "a name=value pair has a control character");
  EXPECT_EQ(refusal("a=1 ~"), "") << "a space is none";
  EXPECT_EQ(refusal("a=\xff"), "");
}

TEST(Params, AreToldApartBySpacesHoweverMany) {
  EXPECT_EQ(parse_params("  a=1   b=2 ", ' '), (Params{{"a", "1"}, {"b", "2"}}));
  EXPECT_EQ(refusal("a=1,,b=2"), "'': expected name=value");
  EXPECT_EQ(refusal("a=1 b=2 a=3", ' '), "'a' is given twice");
}

TEST(Params, AreFoundByName) {
  const Params params = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(*find_param(params, "b"), "2");
  EXPECT_EQ(find_param(params, "c"), nullptr);
  EXPECT_EQ(find_param({}, "a"), nullptr);
}

TEST(ParseInteger, TakesADecimalIntegerAndNothingElse) {
  std::int64_t value = 0;
  EXPECT_TRUE(parse_integer("-17", value));
  EXPECT_EQ(value, -17);
  EXPECT_TRUE(parse_integer("9223372036854775807", value));
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "0x10", "1.0", "9223372036854775808"}) {
    EXPECT_FALSE(parse_integer(text, value)) << text;
  }
}

TEST(NearestName, IsByTheFewestEdits) {
  EXPECT_EQ(nearest_name("tile", {"tip", "tile_k", "tiles"}), "tile_k") << "a beginning is one";
  EXPECT_EQ(nearest_name("tils", {"tails", "tile"}), "tails") << "of equals the first";
  EXPECT_EQ(nearest_name("tlie", {"tile"}), "tile") << "two letters changed places";
  EXPECT_EQ(nearest_name("xthreads", {"tile", "threads"}), "threads");
  EXPECT_EQ(nearest_name("thread", {"treads", "thready"}), "thready");
  EXPECT_EQ(nearest_name("tile", {}), "");
  EXPECT_EQ(nearest_name("t", {"B", "T"}), "T") << "a letter of the other case is nearer";
  EXPECT_EQ(nearest_name("JSON", {"csv", "json"}), "json");
}

TEST(NearestName, IsNoneOfAnotherWord) {
  // A third of the letters and one more may be wrong.
  EXPECT_EQ(nearest_name("abcdef", {"abcxyz"}), "abcxyz");
  EXPECT_EQ(nearest_name("abcdef", {"abwxyz"}), "");
  EXPECT_EQ(nearest_name("a", {"b"}), "b");
  EXPECT_EQ(nearest_name("ab", {"cd"}), "");
  EXPECT_EQ(nearest_name("ab", {"abcdef"}), "") << "too short to be a beginning";
  EXPECT_EQ(nearest_name("abc", {"abcdefghij"}), "abcdefghij");
}

TEST(DidYouMean, EndsAMessageOrAddsNothing) {
  EXPECT_EQ(did_you_mean("theads", {"threads"}), "; did you mean 'threads'?");
  EXPECT_EQ(did_you_mean("zzzz", {"threads"}), "");
}

}  // namespace
}  // namespace attune
