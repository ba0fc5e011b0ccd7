// The report: one page that is well formed, needs nothing else, and shows what was tuned.
#include <sstream>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

boost::property_tree::ptree parse_xml(const std::string& text) {
  boost::property_tree::ptree tree;
  std::istringstream stream(text);
  boost::property_tree::read_xml(stream, tree);  // throws when it is not well formed
  return tree;
}

int count_elements(const boost::property_tree::ptree& tree, const std::string& name) {
  int count = 0;
  for (const auto& [child_name, child] : tree)
    count += static_cast<int>(child_name == name) + count_elements(child, name);
  return count;
}

void tune(const Sandbox& here, const std::string& tokens) {
  const Outcome outcome = here.run({"tune", "recurrent_attention", "T=" + tokens, "H=2", "D=16",
                                    "--platform", "simd", "--budget", "1s"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Report, IsOneWellFormedPageOfEveryTunedProblem) {
  const Sandbox here;
  tune(here, "64");
  tune(here, "100");
  const Outcome outcome = here.run({"report"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto tree = parse_xml(outcome.out);
  EXPECT_GE(count_elements(tree, "svg"), 2) << "bars and a roofline";
  EXPECT_EQ(count_elements(tree, "circle"), 2) << "a point of the roofline for each";
  EXPECT_EQ(count_elements(tree, "tr"), 3) << "a heading and a row for each";
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("recurrent_attention"), HasSubstr("T=64 H=2 D=16"),
                                 HasSubstr("T=100 "), HasSubstr("prefers-color-scheme:dark"),
                                 Not(HasSubstr("http")), Not(HasSubstr("<script"))));
}

TEST(Report, GoesToAFileWhenAskedAndNamesCeilings) {
  const Sandbox here;
  tune(here, "64");
  const std::string path = here.file("report.html");
  const Outcome outcome =
      here.run({"report", "--output", path, "--peak", "200", "--bandwidth", "25"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(path, tree);
  EXPECT_GE(count_elements(tree, "svg"), 2);
}

TEST(Report, OfNothingIsTheAnswerNo) {
  const Outcome outcome = Sandbox().run({"report"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("nothing is tuned yet"));
}

TEST(Report, BadArgumentsAreNamed) {
  const Sandbox here;
  EXPECT_THAT(here.run({"report", "--peak", "3"}).err, HasSubstr("--bandwidth"));
  EXPECT_EQ(here.run({"report", "/absent.db"}).exit_code, 4);
  tune(here, "64");
  const Outcome outcome = here.run({"report", "--output", "/absent/report.html"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("/absent/report.html"));
}

}  // namespace
}  // namespace attune::test
