// Problems that are drawn, what stands beside them, and what is said of their times.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drawn/draw.hpp"
#include "drawn/survey.hpp"
#include "program/exit_code.hpp"
#include "support/heuristic_context.hpp"

namespace attune::cli {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr double kMostBytes = 2e9;

bool is_affordable(const NamedProblem& named) {
  const OpInfo& op = test::heuristic_context().registry().op(named.op);
  return op.bytes(op.parse(named.params)) <= kMostBytes;  // throws where it is not legal
}

PointDraw draw_within(std::string_view words, std::uint64_t seed = 1) {
  return {seed, parse_spec_text(words), is_affordable};
}

std::string text_of(const Point& point) {
  const NamedProblem named = point.problem();
  return named.op + ' ' + to_text(named.params, ' ');
}

std::vector<Point> draw(std::string_view words, std::uint64_t count, std::uint64_t seed = 1) {
  const PointDraw points = draw_within(words, seed);
  std::vector<Point> drawn;
  for (std::uint64_t i = 0; i < count; ++i) drawn.push_back(points.point(i).value());
  return drawn;
}

std::vector<std::string> values(const std::vector<Point>& points, std::string_view field) {
  std::vector<std::string> all;
  for (const Point& point : points) all.push_back(point[field]);
  return all;
}

TEST(PointDraw, IsTheSameForTheSameSeedEverywhere) {
  EXPECT_EQ(text_of(*draw_within("", 7).point(3)), text_of(*draw_within("", 7).point(3)));
  EXPECT_NE(text_of(*draw_within("", 7).point(3)), text_of(*draw_within("", 8).point(3)));
  EXPECT_EQ(
      text_of(*draw_within("", 7).point(0)),
      "recurrent_attention T=31160 N=87 H=48 K=256 V=64 dtype=f16 gate=gamma reverse=no h0=no ht=no");
}

TEST(PointDraw, ReachesAllThatThereIs) {
  const std::vector<Point> points = draw("", 1000);
  for (const PointAxis& axis : point_axes()) {
    const std::vector<std::string> drawn = values(points, axis.name);
    const bool is_number = axis.values.back().front() <= '9';
    if (is_number) continue;
    for (const std::string& value : axis.values) EXPECT_THAT(drawn, Contains(value)) << axis.name;
  }
  EXPECT_THAT(values(points, "pass"), Contains("bwd"));
  for (const char* channels : {"16", "512", "64", "128"}) {
    EXPECT_THAT(values(points, "K"), Contains(channels));
    EXPECT_THAT(values(points, "V"), Contains(channels));
  }
  EXPECT_THAT(values(points, "H"), Contains("128"));
  int odd = 0, packed = 0, long_ones = 0, short_ones = 0;
  for (const Point& point : points) {
    odd += point.number("K") % 2 != 0 ? 1 : 0;
    packed += point.number("N") > 0 ? 1 : 0;
    long_ones += point.number("B") * point.number("T") > (1 << 18) ? 1 : 0;
    short_ones += point.number("T") < 16 ? 1 : 0;
    for (const char* channels : {"K", "V"}) {
      EXPECT_GE(point.number(channels), 16);
      EXPECT_LE(point.number(channels), 512);
    }
  }
  EXPECT_GT(odd, 20);
  EXPECT_GT(packed, 150);
  EXPECT_GT(long_ones, 20);
  EXPECT_GT(short_ones, 100);
}

TEST(PointDraw, KeepsTheFieldsThatAreGiven) {
  const std::vector<Point> points =
      draw("recurrent_attention.backward D=64,80 gate=gk dtype=f32 H=12 Hkv=3 aligned=no", 50);
  std::set<std::string> channels;
  for (const Point& point : points) {
    channels.insert(point["K"]);
    EXPECT_EQ(point["K"], point["V"]);
    EXPECT_THAT(text_of(point), HasSubstr("recurrent_attention.backward "));
    EXPECT_THAT(text_of(point), HasSubstr(" H=12 "));
    EXPECT_THAT(text_of(point), HasSubstr(" dtype=f32 gate=gk "));
    EXPECT_THAT(text_of(point), HasSubstr(" Hkv=3 aligned=no"));
  }
  EXPECT_THAT(channels, UnorderedElementsAre("64", "80"));
  EXPECT_THAT(values(draw("N=5", 20), "N"), Each("5"));
  EXPECT_THAT(values(draw("B=5", 20), "N"), Each("0"));
  EXPECT_THAT(values(draw("pass=bwd", 20), "pass"), Each("bwd"));
}

TEST(PointDraw, FindsNothingWhereEverythingCostsTooMuch) {
  EXPECT_FALSE(draw_within("B=1 T=1000000 H=128 K=512").point(0).has_value());
}

TEST(PointDraw, IsOfRecurrentAttentionAlone) {
  EXPECT_THROW(draw_within("recurrent_decode B=4"), UsageError);
}

TEST(Neighbours, DifferInOneFieldThatIsMovedToItsNextValue) {
  Point point;
  point.set("K", 100);
  point.set("H", 128);
  std::multiset<std::string> moved;
  for (const Neighbour& neighbour : neighbours_of(point)) {
    int changed = 0;
    for (const PointAxis& axis : point_axes()) {
      changed += point[axis.name] != neighbour.point[axis.name] ? 1 : 0;
    }
    EXPECT_EQ(changed, 1) << neighbour.field;
    moved.insert(str(neighbour.field, '=', neighbour.point[neighbour.field]));
  }
  EXPECT_THAT(moved,
              UnorderedElementsAre("B=2", "T=1024", "T=4096", "H=96", "group=2", "K=96", "K=128",
                                   "V=96", "V=160", "dtype=f16", "gate=none", "gate=g+gk",
                                   "gate=gamma+gk", "gate=gk+gv", "gate_dtype=f32", "reverse=yes",
                                   "h0=yes", "ht=yes", "layout=bhtd"));
}

TEST(Anchors, AreLegal) {
  for (const Point& anchor : anchors()) EXPECT_NO_THROW(is_affordable(anchor.problem()));
}

Measured measured(std::string_view walk, double us, double floor_us, std::string kernel,
                  std::int64_t tokens) {
  Measured one{.walk = walk,
               .point = {},
               .op = "op",
               .problem = str("T=", tokens),
               .median_us = us,
               .floor_us = floor_us,
               .kernel = std::move(kernel)};
  one.point.set("T", tokens);
  return one;
}

std::string csv(Table table) {
  return render({{.name = "", .table = std::move(table)}}, Format::kCsv);
}

TEST(Survey, SummarizesTimesOverFloors) {
  Survey survey(6);
  survey.add(measured("random", 16, 5, "chunk", 64));
  survey.add(measured("random", 3, 0.5, "chunk", 1));
  survey.add(measured("random", 26, 0.1, "recurrent", 64));
  survey.add(measured("random", 0, 9, "unsupported", 64));
  survey.add(measured("beside", 1000, 1, "recurrent", 64));
  EXPECT_EQ(csv(survey.summary()),
            "walk,kernel,problems,percent,median,p90,worst\r\n"
            "random,all,3,100.0,2.0,20.0,20.0\r\n"
            "random,\"recurrent ones, of T >= 64\",1,50.0,20.0,20.0,20.0\r\n"
            "random,chunk,2,66.66666666666667,2.0,2.0,2.0\r\n"
            "random,recurrent,1,33.333333333333336,20.0,20.0,20.0\r\n"
            "beside,all,1,100.0,994.0,994.0,994.0\r\n"
            "beside,\"recurrent ones, of T >= 64\",1,100.0,994.0,994.0,994.0\r\n"
            "beside,recurrent,1,100.0,994.0,994.0,994.0\r\n");
  EXPECT_EQ(survey.worst(2), (std::vector<std::size_t>{2, 0}))
      << "what is beside others is left out";
}

TEST(Survey, ComparesNeighboursByTimeForAByteAndNoneBelowItsFloor) {
  Survey survey(0);
  const std::size_t slow = survey.add(measured("grid", 40, 5, "a", 64));
  const std::size_t fast = survey.add(measured("grid", 8, 10, "b", 128));
  const std::size_t failed = survey.add(measured("grid", 0, 10, "unsupported", 256));
  survey.add_neighbours(fast, slow, "T");
  survey.add_neighbours(slow, fast, "T");
  survey.add_neighbours(slow, failed, "T");
  const Table table = survey.neighbours_table(10);
  ASSERT_EQ(table.rows().size(), 1U);
  EXPECT_EQ(csv(table),
            "ratio,op,problem,seed,times_floor,median_us,kernel,field,neighbour,"
            "neighbour_times_floor,neighbour_us,neighbour_kernel\r\n"
            "8.0,op,T=64,1,8.0,40.0,a,T,128,0.8,8.0,b\r\n");
}

}  // namespace
}  // namespace attune::cli
