// What JSON from elsewhere must be.
#include <optional>
#include <string>

#include <attune_json/strict_json.hpp>
#include <gtest/gtest.h>

namespace attune {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Why = JsonRefused::Why;

template <class Json = json>
std::optional<JsonRefused> refusal(std::string_view text, std::size_t max_depth = 3) {
  try {
    parse_strict_json<Json>(text, max_depth);
    return std::nullopt;
  } catch (const JsonRefused& refused) {
    return refused;
  }
}

TEST(StrictJson, ReadsEveryKindOfValueAsTheLibraryDoes) {
  for (const char* text : {"null", "true", "-3", "18446744073709551615", "1.5e-3", R"("a\u00e9\n")",
                           "[]", "{}", R"([1, "x", [null, {}], {"a": [true, false]}])",
                           R"({"b": {"c": [1, 2]}, "a": -0.0})", "\xef\xbb\xbf[1]"}) {
    EXPECT_EQ(parse_strict_json<json>(text, 4), json::parse(text)) << text;
    EXPECT_EQ(parse_strict_json<ordered_json>(text, 4).dump(), ordered_json::parse(text).dump())
        << text;
  }
}

TEST(StrictJson, KeepsTheOrderOfNamesWhereTheCallerWantsIt) {
  const std::string text = R"({"z":1,"a":{"y":2,"b":3},"m":4})";
  EXPECT_EQ(parse_strict_json<ordered_json>(text, 2).dump(), text);
}

TEST(StrictJson, RefusesANameThatIsGivenTwiceInOneObject) {
  for (const char* text : {R"({"a": 1, "a": 1})", R"([{"b": {}}, {"a": 1, "b": {"a": 2}, "a": 3}])",
                           R"({"a": 1, "\u0061": 2})"}) {
    const auto refused = refusal(text);
    const auto refused_ordered = refusal<ordered_json>(text);
    ASSERT_TRUE(refused && refused_ordered) << text;
    EXPECT_EQ(refused->why, Why::kNameTwice) << text;
    EXPECT_EQ(refused->name, "a") << text;
    EXPECT_EQ(refused_ordered->name, "a") << text;
  }
  EXPECT_FALSE(refusal(R"([{"a": {"a": 1}}, {"a": 2}])")) << "in objects of their own";
}

TEST(StrictJson, RefusesNestingBeyondTheCallersDepthAndSaysWhere) {
  EXPECT_FALSE(refusal(R"({"a": [[1]]})", 3));
  const auto refused = refusal(R"({"b": [1], "a": [{"c": {}}]})", 3);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->why, Why::kTooDeep);
  EXPECT_EQ(refused->name, "a") << "of the outermost object";
  const auto deep = refusal(std::string(1 << 20, '['), 3);
  ASSERT_TRUE(deep);
  EXPECT_EQ(deep->why, Why::kTooDeep) << "before the end of the text is looked for";
  EXPECT_EQ(deep->name, "");
}

TEST(StrictJson, SaysOfWhatIsNotJsonWhatTheLibrarySays) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "nul", "\"\xff\"", "\"\n\"",
                           "1e999", "[1] x", "{1: 2}"}) {
    const auto refused = refusal(text);
    ASSERT_TRUE(refused) << text;
    EXPECT_EQ(refused->why, Why::kNotJson) << text;
    try {
      const json parsed = json::parse(text);
      ADD_FAILURE() << text << " is " << parsed;
    } catch (const json::exception& error) {
      EXPECT_STREQ(refused->what(), error.what()) << text;
    }
  }
}

}  // namespace
}  // namespace attune
