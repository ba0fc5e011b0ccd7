// Specs from files and JSON.
#include <sys/stat.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "problems/spec.hpp"
#include "program/exit_code.hpp"
#include "support/temporary_folder.hpp"

namespace attune::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SpecJson, IsTheSameGrammar) {
  EXPECT_EQ(parse_spec_json(R"({"op": "toy", "T": [512, "1024"], "dtype": "bf16", "h0": true})"),
            parse_spec_text("toy T=512,1024 dtype=bf16 h0=yes"));
  EXPECT_EQ(parse_spec_json(R"({"T": "[512:2048:*2],7"})"), parse_spec_text("T=512,1024,2048,7"));
}

TEST(SpecJson, RefusesWhatCannotBeAValue) {
  for (const char* text :
       {"", "{", "[]", "3", R"({"T": 1.5})", R"({"T": null})", R"({"T": {}})", R"({"T": []})",
        R"({"T": [[1]]})", R"({"op": 3})", R"({"T": 1, "T": 2})", R"({"T": [{"x": 1}]})",
        R"({"recorded": {"hits": 1, "hits": 2}})", R"({"recorded": {"hits": [[1]]}})", R"([[[1]]])",
        R"({"T": "a\nb"})", R"({"": 1})", R"({"T": 1} {"T": 2})"}) {
    EXPECT_THROW(parse_spec_json(text), UsageError) << text;
  }
}

class SpecFile : public ::testing::Test {
 protected:
  std::vector<Spec> read(const std::string& content, std::vector<std::string> words = {}) {
    const std::string path = folder_.file("specs");
    std::ofstream(path) << content;
    words.push_back("@" + path);
    return read_specs(words);
  }
  test::TemporaryFolder folder_;
};

TEST_F(SpecFile, HoldsOneSpecALineAsTextOrJson) {
  const std::vector<Spec> specs = read("# shapes\n\n toy T=1,2\r\n{\"T\": 3}\nother T=4", {"toy"});
  ASSERT_EQ(specs.size(), 3U);
  EXPECT_EQ(specs[0], parse_spec_text("toy T=1,2"));
  EXPECT_EQ(specs[1], parse_spec_text("toy T=3"))
      << "the command line's op where the line says none";
  EXPECT_EQ(specs[2], parse_spec_text("other T=4"));
}

TEST_F(SpecFile, StandsBesideASpecOnTheCommandLine) {
  const std::vector<Spec> specs = read("T=2\n", {"toy", "T=1"});
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(specs[0], parse_spec_text("toy T=1"));
  EXPECT_EQ(specs[1], parse_spec_text("toy T=2"));
}

TEST_F(SpecFile, MessagesNameFileAndLine) {
  try {
    read("toy T=1\n\ntoy T=[1:2]\n");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_.file("specs") + ":3: T=[1:2]"));
  }
  const std::string words[] = {"@" + folder_.file("absent")};
  EXPECT_THROW(read_specs(words), UsageError);
  const std::string folder[] = {"@" + folder_.path().string()};
  EXPECT_THROW(read_specs(folder), UsageError) << "a folder is no file";
}

TEST(SpecJson, ReadsWhatARecorderNoted) {
  const Spec spec = parse_spec_json(
      R"({"op":"a","T":1,"recorded":{"hits":12,"device_class":"cpu:x","platform":"simd","answer":"heuristic"}})");
  EXPECT_EQ(spec.recorded, (RecordedCalls{12, "cpu:x", "simd"}));
  EXPECT_EQ(spec.axes.size(), 1U);
  EXPECT_THROW(parse_spec_json(R"({"op":"a","recorded":3})"), UsageError);
  EXPECT_THROW(parse_spec_json(R"({"op":"a","recorded":{"hits":-1}})"), UsageError);
  EXPECT_THROW(parse_spec_json(R"({"op":"a","recorded":{"platform":1}})"), UsageError);
}

std::string refusal_of(const std::vector<std::string>& words) {
  try {
    read_specs(words);
    return "accepted";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST_F(SpecFile, MayBeginWithAByteOrderMark) {
  const std::vector<Spec> expected{parse_spec_text("toy T=1")};
  EXPECT_EQ(read("\xef\xbb\xbf# shapes\r\ntoy T=1\r\n"), expected);
  EXPECT_EQ(read("\xef\xbb\xbftoy T=1\n"), expected);
  EXPECT_EQ(read("\xef\xbb\xbf{\"op\": \"toy\", \"T\": 1}\n"), expected);
}

// A recording grows to 16 MiB, which may be 100,000 lines of a few problems.
TEST_F(SpecFile, AddsUpTheLinesOfOneProblem) {
  const std::string line = R"({"op":"toy","T":1,"recorded":{"platform":"auto","hits":2}})";
  std::string text;
  for (std::size_t i = 0; i < 2 * kMaxProblems; ++i) text += line + '\n';
  const std::vector<Spec> specs = read(text + R"({"op":"toy","T":1,"recorded":{"hits":1}})" + '\n');
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(specs[0].recorded.hits, 4 * static_cast<std::int64_t>(kMaxProblems));
  EXPECT_EQ(specs[1].recorded.hits, 1);
}

TEST_F(SpecFile, IsARegularFile) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of({"toy", "@" + fifo}),
              AllOf(HasSubstr("but a FIFO"), HasSubstr("'-' reads standard input")));
  EXPECT_THAT(refusal_of({"toy", "@/dev/zero"}), HasSubstr("but a device"));
  EXPECT_THAT(refusal_of({"toy", "@" + folder_.path().string()}), HasSubstr("but a folder"));
  EXPECT_THAT(refusal_of({"toy", "@" + folder_.file("absent")}), HasSubstr("cannot be opened"));
}

TEST_F(SpecFile, IsReadUpToItsBounds) {
  const auto refusal = [&](const std::string& content) {
    std::ofstream(folder_.file("specs")) << content;
    return refusal_of({"toy", "@" + folder_.file("specs")});
  };
  EXPECT_THAT(refusal("T=1\n" + std::string(300'000, ' ')), HasSubstr("specs:2: longer than"));
  const std::string comment = "#" + std::string(200'000, ' ') + "\n";
  std::string comments;
  while (comments.size() <= std::size_t{64} << 20) comments += comment;
  EXPECT_THAT(refusal(comments), HasSubstr("more than 67108864 bytes"));
  // Each line is legal by itself, and all of them together would fill memory.
  EXPECT_THAT(refusal("T=[1:10000:+1]\nT=[2:10000:+1]\n"),
              HasSubstr("specs:2: more than 10000 problems"));
}

}  // namespace
}  // namespace attune::cli
