// What a suite says of its bounds.
#include "suites/suite_bounds.hpp"

#include <gmock/gmock.h>

namespace attune::cli {
namespace {

constexpr auto kAtLeast = Reading::Sense::kAtLeast;
constexpr auto kAtMost = Reading::Sense::kAtMost;

std::string text_of(const Cell& cell) {
  return cell.empty() ? "" : std::get<std::string>(cell.value());
}

TEST(SuiteBounds, AVerdictNamesWhatIsMissed) {
  const Reading share{"share", {0.55, 0.68}, kAtLeast, 0.6};
  const Reading slow{"times_forward", {3.1, 2.7}, kAtMost, 3.2};
  const Reading fast{"times_forward", {3.1, 2.7}, kAtMost, 2.7};
  const Reading scaling{"scaling", {1.85}, kAtLeast, 1.84};
  const auto of = [](std::vector<Reading> readings) { return text_of(verdict(readings)); };
  EXPECT_EQ(of({share}), "must");
  EXPECT_EQ(of({fast}), "goal");
  EXPECT_EQ(of({share, fast}), "must");
  EXPECT_EQ(of({share, slow, scaling}), "missed: times_forward, scaling");
  EXPECT_EQ(of({{"scaling", {1.85}, kAtLeast, 1.85}}), "goal") << "there is no other";
  EXPECT_EQ(of({{"share", {}, kAtLeast, 0.1}}), "") << "nothing is asked of it";
}

TEST(SuiteBounds, EachBoundIsALineWithItsWorstRow) {
  BoundsReached bounds;
  bounds.add("gates", 1, "T=64", {"share", {0.5, 0.7}, kAtLeast, 0.6});
  bounds.add("gates", 1, "T=512", {"share", {0.5, 0.7}, kAtLeast, 0.4});
  bounds.add("gates", 1, "T=2048", {"share", {0.5, 0.7}, kAtLeast, 0.8});
  bounds.add("gates", 2, "T=64", {"share", {0.5, 0.7}, kAtLeast, 0.9});
  bounds.add("gates", 1, "T=64", {"share", {}, kAtLeast, 0.1});
  bounds.add("backward", 1, "T=64", {"times_forward", {3.1}, kAtMost, 3.0});
  bounds.add("backward", 1, "T=512", {"times_forward", {3.1}, kAtMost, 3.2});
  EXPECT_EQ(render({{.name = "", .table = bounds.table()}}, Format::kCsv),
            "about,threads,quantity,must,goal,rows,reach_must,reach_goal,worst,worst_problem\r\n"
            "gates,1,share,0.5,0.7,3,2,1,0.4,T=512\r\n"
            "gates,2,share,0.5,0.7,1,1,1,0.9,T=64\r\n"
            "backward,1,times_forward,3.1,,2,1,,3.2,T=512\r\n");
}

}  // namespace
}  // namespace attune::cli
