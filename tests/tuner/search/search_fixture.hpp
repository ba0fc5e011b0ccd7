// A tuning whose candidates run in a place that does as a test says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <attune/core/log.hpp>
#include <attune/tuner/candidate_runner.hpp>

#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {

/// A place to run candidates of tiles, which are all right, and faster the larger they are.
struct Place {
  std::function<double(int tile)> cost_us = [](int tile) { return 1000.0 / tile; };
  std::function<std::optional<tuning::Verdict>(int tile, int round)> reduced = [](int, int) {
    return std::optional<tuning::Verdict>(tuning::Verdict{});
  };
  std::function<tuning::Verdict(int tile)> full = [](int) { return tuning::Verdict{}; };
  double full_check_us = 0;  // what that takes
  std::string lost;          // device_failure()

  std::map<int, std::vector<int>> timed;  // by tile: the repeats of each sample
  std::vector<int> checked_at_full_size;  // before the first sample of the race and after it
  std::map<int, int> like;                // by tile: what it was to be like; 0: nothing
};

class PlaceRunner final : public tuning::CandidateRunner {
 public:
  PlaceRunner(World& world, Place& place) : world_(world), place_(place) {}
  std::optional<tuning::Verdict> check_reduced(const Candidate& candidate, int round) override {
    return place_.reduced(tile_of(candidate), round);
  }
  tuning::Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) override {
    world_.now_us += place_.full_check_us;
    place_.checked_at_full_size.push_back(tile_of(candidate));
    place_.like[tile_of(candidate)] = like == nullptr ? 0 : tile_of(*like);
    return place_.full(tile_of(candidate));
  }
  double time_us(const Candidate& candidate, int repeats) override {
    const int tile = tile_of(candidate);
    place_.timed[tile].push_back(repeats);
    const double us = place_.cost_us(tile) * repeats;
    world_.now_us += us;
    return us;
  }
  std::string device_failure() override { return place_.lost; }

 private:
  static int tile_of(const Candidate& candidate) {
    return Kernel<TiledConfig>::unpack(candidate.config).tile;
  }
  World& world_;
  Place& place_;
};

class SearchTest : public TunerTest {
 protected:
  SearchTest() {
    settings.make_runner = [this](const tuning::Workload&) {
      return std::make_unique<PlaceRunner>(world, place);
    };
    settings.warmup = 0;
    settings.budget = std::chrono::milliseconds(2400);
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~SearchTest() override { set_log_sink({}); }

  /// Candidates of these tiles; the first is the default.
  void add_tiles(const std::vector<int>& tiles) {
    Script script{.heuristic = {.tile = tiles.front()}};
    for (const int tile : tiles) script.candidates.push_back({.tile = tile});
    add(std::move(script));
  }
  static std::string name_of(int tile) {
    return str("test.scaling.tiled tile=", tile, ",threads=1");
  }
  static const Trial& trial(const TuneResult& result, int tile) {
    return trial_of(result, name_of(tile));
  }
  Tuner::Request with_incumbent(int tile) {
    Tuner::Request with = request();
    with.incumbent = candidate("test.scaling.tiled", str("tile=", tile));
    return with;
  }
  std::set<int> checked() const {
    return {place.checked_at_full_size.begin(), place.checked_at_full_size.end()};
  }

  Place place;
};

}  // namespace attune::test
