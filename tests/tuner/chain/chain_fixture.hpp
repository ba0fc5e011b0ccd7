// A chain over scripted kernels, the fake device and databases in a folder of its own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/device_class.hpp>
#include <attune/core/log.hpp>
#include <attune/core/version.hpp>
#include <attune/tuner/config_selector_chain.hpp>

#include "support/temporary_folder.hpp"
#include "tuner/scaling_op.hpp"

namespace attune::test {

/// An event that outlives its sink's call.
struct SeenEvent {
  EventKind kind = EventKind::kSelected;
  std::string op, problem, kernel, config, reason;
  Tier tier = Tier::kHeuristic;
  std::int64_t candidates = 0;
  double median_us = 0, default_us = 0;
};

class ChainTest : public testing::Test {
 protected:
  ChainTest() {
    settings.store.user_path = folder.file("user.db");
    settings.policy = policy_of(Policy::kTune);
    settings.tuner.now = [this] { return world.now(); };
    set_log_sink([this](LogLevel, std::string_view line) { logged += std::string(line) + "\n"; });
    registry.add_op<Scaling>();
    registry.add_alias<ScalingAlias>();
  }
  ~ChainTest() override {
    chain_.reset();
    set_log_sink({});
  }

  /// A policy whose process budget no other test has spent.
  static AutotunePolicy policy_of(Policy policy) {
    AutotunePolicy full = AutotunePolicy::of(policy);
    full.process_budget = std::chrono::hours(1000);
    return full;
  }

  void add(Script script, int priority = 0, std::string_view platform = "test") {
    registry.add(scripted(world, std::move(script)), {.platform = platform, .priority = priority});
  }
  /// The usual kernel: tile=32 is fastest, the default is tile=1.
  void add_tiled() { add({}); }

  ConfigSelectorChain& chain() {
    if (chain_ == nullptr) chain_ = make_chain();
    return *chain_;
  }
  std::unique_ptr<ConfigSelectorChain> make_chain() {
    return std::make_unique<ConfigSelectorChain>(registry, events, settings);
  }
  /// Forgets what is in memory: as another process would start.
  void restart() { chain_ = make_chain(); }

  Request request() const { return {.device = &device}; }
  Choice select() { return select(chain(), request()); }
  Choice select(const Request& with) { return select(chain(), with); }
  Choice select(ConfigSelectorChain& from, const Request& with) {
    return select_problem(from, problem, with);
  }
  static Choice select_problem(ConfigSelectorChain& from, const ScalingProblem& problem,
                               const Request& with) {
    return from.select(selection_key<Scaling>(problem, with), ProblemRef::of<Scaling>(problem),
                       with);
  }
  Choice select_under(Policy policy) {
    const PolicyScope scope(policy_of(policy));
    return select();
  }
  ProblemRef what() const { return ProblemRef::of<Scaling>(problem); }

  static std::string text(const Choice& choice) { return text_of(*choice.kernel, choice.config); }

  RowKey row_key(const std::string& platform = "auto") const {
    return {"scaling", device.info().device_class, platform, problem_text<Scaling>(problem)};
  }
  ConfigRow row(const std::string& config, const std::string& kernel = "test.scaling.tiled") const {
    ConfigRow row;
    row.key = row_key();
    row.bucket = problem_text<Scaling>(problem, true);
    row.kernel = kernel;
    row.kernel_version = 1;
    row.config = config;
    row.median_us = 10;
    row.default_us = 20;
    row.default_config = "test.scaling.tiled tile=1,threads=1";
    row.samples = 100;
    row.noise = NoiseGrade::kA;
    row.library_version = ATTUNE_VERSION;
    row.device_name = "a fake device";
    row.created = 1;
    return row;
  }
  void write(const ConfigRow& row, const std::string& file = "user.db") const {
    ConfigDatabase(folder.file(file), ConfigDatabase::Mode::kReadWrite).put(row);
  }
  void pin(const std::string& kernel, const std::string& config) const {
    PinRow row;
    row.key = row_key();
    row.kernel = kernel;
    row.config = config;
    row.reason = "an incident";
    row.created = 1;
    ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).pin(row);
  }
  std::vector<ConfigRow> rows_on_disk() const {
    if (!std::filesystem::exists(settings.store.user_path)) return {};
    return ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly).read().rows;
  }

  /// Collects events from now on.
  void listen() {
    subscription_ = events.subscribe([this](const Event& e) {
      seen.push_back({e.kind, std::string(e.op), std::string(e.problem), std::string(e.kernel),
                      std::string(e.config), std::string(e.reason), e.tier, e.candidates,
                      e.median_us, e.default_us});
    });
  }
  std::vector<SeenEvent> seen_of(EventKind kind) const {
    std::vector<SeenEvent> some;
    for (const SeenEvent& event : seen) {
      if (event.kind == kind) some.push_back(event);
    }
    return some;
  }

  TemporaryFolder folder;
  World world;
  FakeDevice device{world};
  Registry registry;
  EventBus events;
  ConfigSelectorChain::Settings settings;
  ScalingProblem problem;
  std::vector<SeenEvent> seen;
  std::string logged;

 private:
  std::unique_ptr<ConfigSelectorChain> chain_;
  EventBus::Subscription subscription_;
};

inline constexpr std::string_view kBest = "test.scaling.tiled tile=32,threads=1";
inline constexpr std::string_view kDefault = "test.scaling.tiled tile=1,threads=1";

}  // namespace attune::test
