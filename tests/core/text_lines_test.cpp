// Lines of a text that may be anything.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/error.hpp>
#include <attune/core/text_lines.hpp>

namespace attune {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  TextLines lines(in, 100, 1000);
  std::vector<std::string> all;
  for (std::string line; lines.next(line);) all.push_back(line);
  EXPECT_EQ(lines.number(), all.size() + 1);
  return all;
}

TEST(TextLines, EndAsOnAnySystemTheLastOneWithOrWithoutAnEnd) {
  EXPECT_THAT(lines_of("a\nb\r\n\nc"), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of(""), ElementsAre());
  EXPECT_THAT(lines_of("a\rb"), ElementsAre("a\rb"));
}

TEST(TextLines, BeginWithoutAByteOrderMark) {
  EXPECT_THAT(lines_of("\xef\xbb\xbf"
                       "a\n\xef\xbb\xbf"
                       "b"),
              ElementsAre("a",
                          "\xef\xbb\xbf"
                          "b"));
  EXPECT_THAT(lines_of("\xef\xbb\xbf"), ElementsAre(""));
}

/// Zeros without an end, and how many of them were asked for.
class Endless : public std::streambuf {
 public:
  explicit Endless(char c) : byte_(c) {}
  std::size_t read = 0;

 private:
  int_type underflow() override {
    ++read;
    setg(&byte_, &byte_, &byte_ + 1);
    return traits_type::to_int_type(byte_);
  }
  char byte_;
};

TEST(TextLines, AreReadUpToTheirBoundsAndNoFurther) {
  for (const char c : {'\0', '\n'}) {
    Endless source(c);
    std::istream in(&source);
    TextLines lines(in, 100, 1000);
    std::string line;
    EXPECT_THROW(while (lines.next(line)){}, InvalidArgument);
    EXPECT_LE(source.read, c == '\n' ? 1001U : 101U);
    EXPECT_EQ(lines.number(), c == '\n' ? 1001U : 1U);
  }
  EXPECT_THAT(lines_of(std::string(100, 'x')), ElementsAre(std::string(100, 'x')));
}

TEST(TextLines, ThatCannotBeReadAreNotTakenForTheEnd) {
  std::istringstream in("a\nb");
  TextLines lines(in, 100, 1000);
  std::string line;
  EXPECT_TRUE(lines.next(line));
  in.setstate(std::ios::badbit);
  EXPECT_THROW(lines.next(line), InvalidArgument);
}

}  // namespace
}  // namespace attune
