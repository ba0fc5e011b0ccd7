// Searches replayed on recorded spaces (tests/data/spaces): how much slower than the best of the
// space the best is that a search has found after so many runs, beside points by chance.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "search/point_order.hpp"
#include "search/space_search.hpp"

namespace attune::test {
namespace {

using tuning::PointOrder;
using tuning::SpaceSearch;

constexpr std::uint64_t kSeeds = 50;
constexpr std::size_t kRuns[] = {25, 50, 100, 200};

/// A space whose configs are one byte an axis: the index of its value.
class RecordedSpace {
 public:
  explicit RecordedSpace(const std::string& name) {
    std::ifstream file(std::string(ATTUNE_SOURCE_DIR "/tests/data/spaces/") + name + ".json");
    const nlohmann::json read = nlohmann::json::parse(file);
    for (const nlohmann::json& axis : read.at("axes")) {
      space.axes.push_back({static_cast<std::uint32_t>(axis.at("values").size())});
    }
    times_ = read.at("times").get<std::vector<double>>();
    space.set = [](ConfigBlob& config, std::size_t axis, std::size_t index) {
      config.bytes[axis] = static_cast<std::byte>(index);
    };
    space.index = [](const ConfigBlob& config, std::size_t axis) {
      return std::to_integer<std::size_t>(config.bytes[axis]);
    };
    best_ = *std::min_element(times_.begin(), times_.end(),
                              [](double a, double b) { return a > 0 && (b == 0 || a < b); });
  }

  bool runs(const ConfigBlob& config) const { return time(config) > 0; }
  double time(const ConfigBlob& config) const { return times_[*space.number_of(config)]; }
  double regret(double us) const { return us / best_ - 1; }

  ConfigSpace space;

 private:
  std::vector<double> times_;  // 0: does not run
  double best_ = 0;
};

/// Regrets after each of kRuns.
using Regrets = std::vector<double>;

Regrets by_chance(const RecordedSpace& on, std::uint64_t seed) {
  const PointOrder order(on.space.size(), seed);
  Regrets regrets;
  double best = std::numeric_limits<double>::infinity();
  std::size_t runs = 0;
  for (std::uint64_t place = 0; place < order.size() && regrets.size() < std::size(kRuns);
       ++place) {
    const ConfigBlob config = on.space.at(order.at(place));
    if (!on.runs(config)) continue;
    best = std::min(best, on.time(config));
    if (++runs == kRuns[regrets.size()]) regrets.push_back(on.regret(best));
  }
  regrets.resize(std::size(kRuns), on.regret(best));  // it was smaller
  return regrets;
}

Regrets by_search(const RecordedSpace& on, std::uint64_t seed) {
  SpaceSearch search(
      on.space, nullptr, [&](const ConfigBlob& config) { return on.runs(config); }, seed);
  Regrets regrets;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t runs = 1; regrets.size() < std::size(kRuns); ++runs) {
    const auto config = search.next();
    if (!config) break;
    best = std::min(best, on.time(*config));
    search.learn(*config, on.time(*config));
    if (runs == kRuns[regrets.size()]) regrets.push_back(on.regret(best));
  }
  regrets.resize(std::size(kRuns), on.regret(best));
  return regrets;
}

struct Summary {
  double mean = 0, median = 0, worst = 0;
};

template <class Search>
std::vector<Summary> replay(const RecordedSpace& on, const Search& search) {
  std::vector<std::vector<double>> by_runs(std::size(kRuns));
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Regrets regrets = search(on, seed);
    for (std::size_t i = 0; i < regrets.size(); ++i) by_runs[i].push_back(regrets[i]);
  }
  std::vector<Summary> summaries;
  for (std::vector<double>& regrets : by_runs) {
    std::sort(regrets.begin(), regrets.end());
    summaries.push_back({std::accumulate(regrets.begin(), regrets.end(), 0.0) / kSeeds,
                         regrets[kSeeds / 2], regrets.back()});
  }
  return summaries;
}

class RecordedSpaces : public testing::TestWithParam<const char*> {};

TEST_P(RecordedSpaces, AreSearchedAlikeByOneSeed) {
  const RecordedSpace space(GetParam());
  EXPECT_EQ(by_search(space, 7), by_search(space, 7));
}

TEST_P(RecordedSpaces, AreSearchedBetterThanByChance) {
  const RecordedSpace space(GetParam());
  const std::vector<Summary> chance = replay(space, by_chance);
  const std::vector<Summary> search = replay(space, by_search);
  for (std::size_t i = 0; i < std::size(kRuns); ++i) {
    std::printf(
        "%-24s %4zu runs: by chance mean %6.1f %% median %6.1f %% worst %6.1f %%; searched "
        "%6.1f %% %6.1f %% %6.1f %%\n",
        GetParam(), kRuns[i], 100 * chance[i].mean, 100 * chance[i].median, 100 * chance[i].worst,
        100 * search[i].mean, 100 * search[i].median, 100 * search[i].worst);
    EXPECT_LE(search[i].mean, chance[i].mean) << kRuns[i] << " runs";
    if (kRuns[i] == 100) {
      EXPECT_LE(search[i].mean, 0.6 * chance[i].mean);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, RecordedSpaces,
                         testing::Values("simd_recurrent", "simd_chunk_backward", "cuda_decode",
                                         "cuda_fused_recurrent_backward"));

}  // namespace
}  // namespace attune::test
