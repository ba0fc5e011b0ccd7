#include "program/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OptionInfo kKnown[] = {{"count", 'c', "N", "", false},
                                 {"scale", '\0', "X", "", false},
                                 {"loud", 'l', "", "", false},
                                 {"load", '\0', "FILE", "", true}};

Options parse(const std::vector<std::string>& arguments,
              std::vector<std::string>* words = nullptr) {
  std::vector<std::string> unused;
  return Options::parse(arguments, kKnown, words != nullptr ? *words : unused);
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Options, KeepsWordsInOrderWhereverTheyStand) {
  std::vector<std::string> words;
  const Options options = parse({"one", "--count", "3", "two", "-", "--", "--three"}, &words);
  EXPECT_EQ(options.integer("count", 0, 9), 3);
  EXPECT_THAT(words, ElementsAre("one", "two", "-", "--three"));
}

TEST(Options, ReadsValuesInEverySpelling) {
  EXPECT_EQ(parse({"--count=3"}).text("count"), "3");
  EXPECT_EQ(parse({"-c", "3"}).text("count"), "3");
  EXPECT_EQ(parse({"-c3"}).text("count"), "3");
  EXPECT_EQ(parse({"--scale", "-0.5"}).real("scale"), -0.5);
  EXPECT_THAT(parse({"--load", "a", "--load", "b"}).texts("load"), ElementsAre("a", "b"));
  EXPECT_TRUE(parse({"-l"}).flag("loud"));
  EXPECT_FALSE(parse({}).flag("loud"));
}

TEST(Options, NeverGuessesAnOptionFromItsBeginning) {
  EXPECT_THAT(refusal({"--cou", "3"}), HasSubstr("no option '--cou'; did you mean '--count'?"));
}

TEST(Options, AFlagNeverTakesTheNextWord) {
  std::vector<std::string> words;
  EXPECT_TRUE(parse({"--loud", "yes"}, &words).flag("loud"));
  EXPECT_THAT(words, ElementsAre("yes"));
  EXPECT_THAT(refusal({"--loud=yes"}), HasSubstr("--loud"));
}

TEST(Options, RefusesWhatIsGivenTwiceOrHalf) {
  EXPECT_THAT(refusal({"--count", "1", "--count", "1"}), HasSubstr("--count"));
  EXPECT_THAT(refusal({"--count", "1", "--count", "1"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--loud", "-l"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--count"}), HasSubstr("--count"));
  EXPECT_THAT(refusal({"--count="}), HasSubstr("expected a value"));
}

TEST(Options, ConversionsNameTheOptionAndTheRange) {
  const auto message = [](auto&& convert) -> std::string {
    try {
      convert();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const char* text : {"-1", "10", "x", "3.0", "99999999999999999999"}) {
    const Options options = parse({std::string("--count=") + text});
    EXPECT_EQ(message([&] { options.integer("count", 0, 9); }),
              std::string("--count '") + text + "': expected a whole number from 0 to 9");
  }
  for (const char* text : {"nan", "inf", "-inf", "1e999", "two"}) {
    const Options options = parse({std::string("--scale=") + text});
    EXPECT_THAT(message([&] { options.real("scale"); }), HasSubstr("--scale")) << text;
  }
  const Options options = parse({"--load", "rde"});
  EXPECT_THAT(message([&] {
                options.one_of("load", {"red", "green"});
              }),
              HasSubstr("did you mean 'red'?"));
}

}  // namespace
}  // namespace attune::cli
