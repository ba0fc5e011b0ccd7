// The split of a list: every machine comes to the same one, and it is even.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <attune/distributed/partition.hpp>

namespace attune::test {
namespace {

using distributed::PartItem;
using distributed::partition;

/// Lists with repetitions, equal costs and problems of several classes.
std::vector<PartItem> any_items() {
  const auto items = *rc::gen::container<std::vector<std::tuple<int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 60), rc::gen::inRange(0, 3)));
  std::vector<PartItem> list;
  for (const auto& [problem, device] : items) {
    // The cost follows from the text, as it does for problems.
    const double cost = 1 + (problem * 7919) % 13;
    const char* const classes[] = {"", "gpu:a", "gpu:b"};
    list.push_back({"problem " + std::to_string(problem), classes[device], cost});
  }
  return list;
}

std::map<std::string, int> parts_by_text(const std::vector<PartItem>& items, int parts) {
  const std::vector<int> part_of = partition(items, parts);
  std::map<std::string, int> by_text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto [known, is_new] = by_text.try_emplace(items[i].text, part_of[i]);
    RC_ASSERT(known->second == part_of[i]);  // repetitions go together
  }
  return by_text;
}

RC_GTEST_PROP(Partition, EveryProblemBelongsToOnePart, ()) {
  const std::vector<PartItem> items = any_items();
  const int parts = *rc::gen::inRange(1, 90);
  for (const auto& [text, part] : parts_by_text(items, parts)) {
    RC_ASSERT(part >= 0);
    RC_ASSERT(part < parts);
  }
}

RC_GTEST_PROP(Partition, NeitherOrderNorRepetitionsMatter, ()) {
  const std::vector<PartItem> items = any_items();
  const int parts = *rc::gen::inRange(1, 20);
  std::vector<PartItem> other = items;
  if (!items.empty()) {
    for (int i = 0; i < 5; ++i)
      other.push_back(items[*rc::gen::inRange<std::size_t>(0, items.size())]);
  }
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  std::shuffle(other.begin(), other.end(), random);
  RC_ASSERT(parts_by_text(items, parts) == parts_by_text(other, parts));
}

/// Graham's bound of list scheduling: no part is ahead of another by more than one problem.
RC_GTEST_PROP(Partition, PartsOfOneClassDifferByOneProblemAtMost, ()) {
  std::vector<PartItem> items = any_items();
  for (PartItem& item : items) item.device_class = "gpu:a";
  const int parts = *rc::gen::inRange(1, 20);
  std::vector<double> loads(static_cast<std::size_t>(parts), 0.0);
  std::map<std::string, double> costs;
  for (const PartItem& item : items) costs[item.text] = item.cost;
  double most = 0;
  for (const auto& [text, part] : parts_by_text(items, parts)) {
    loads[static_cast<std::size_t>(part)] += costs[text];
    most = std::max(most, costs[text]);
  }
  const auto [least, greatest] = std::minmax_element(loads.begin(), loads.end());
  RC_ASSERT(*greatest - *least <= most);
}

TEST(Partition, SharesTheProblemsOfEachClassAmongItsMachines) {
  std::vector<PartItem> items;
  for (int i = 0; i < 32; ++i) {
    items.push_back({"p" + std::to_string(i), i % 2 == 0 ? "gpu:a" : "gpu:b", 1});
  }
  const std::vector<int> part_of = partition(items, 4);
  std::map<std::pair<std::string, int>, int> count;
  for (std::size_t i = 0; i < items.size(); ++i) ++count[{items[i].device_class, part_of[i]}];
  for (const auto& [of, problems] : count) EXPECT_EQ(problems, 4);
  EXPECT_EQ(count.size(), 8U);
}

/// How long all parts take, as a share of what they would take if each ended with the others: 50
/// problems a part, whose costs are known to within a factor of 1.8 at one standard deviation.
TEST(Partition, KeepsMachinesBusyThoughCostsAreGuesses) {
  std::mt19937 random(5);
  std::lognormal_distribution<double> seconds(0.9, 0.8), off(0, std::log(1.8));
  double sum = 0;
  constexpr int kLists = 200;
  for (int list = 0; list < kLists; ++list) {
    const int parts = 2 << (list % 5);
    std::vector<PartItem> items;
    std::vector<double> takes;
    double all = 0;
    for (int i = 0; i < 50 * parts; ++i) {
      takes.push_back(std::clamp(seconds(random), 0.3, 10.0));
      items.push_back({"p" + std::to_string(i), "", takes.back() * off(random)});
      all += takes.back();
    }
    const std::vector<int> part_of = partition(items, parts);
    std::vector<double> ends(static_cast<std::size_t>(parts), 0.0);
    for (std::size_t i = 0; i < takes.size(); ++i) {
      ends[static_cast<std::size_t>(part_of[i])] += takes[i];
    }
    sum += all / (parts * *std::max_element(ends.begin(), ends.end()));
  }
  EXPECT_GT(sum / kLists, 0.85);
}

/// A change would make running shards of one list by two versions leave problems out.
TEST(Partition, IsTheSameInEveryVersion) {
  std::vector<PartItem> items;
  for (int i = 0; i < 12; ++i) {
    items.push_back({"problem " + std::to_string(i), "", static_cast<double>(1 + i * i % 7)});
  }
  EXPECT_EQ(partition(items, 3), (std::vector{0, 2, 2, 1, 2, 1, 1, 2, 1, 0, 0, 0}));
}

}  // namespace
}  // namespace attune::test
