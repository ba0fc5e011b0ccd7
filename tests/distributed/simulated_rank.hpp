// A rank of a job as a test has it: a context of its own over a simulated device, whose noise is
// its own too, and an exchange that counts.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <attune/distributed/thread_exchange.hpp>
#include <attune/distributed/tune_together.hpp>
#include <attune/framework.hpp>

#include "distributed/counting_exchange.hpp"
#include "tuner/scaling_op.hpp"

namespace attune::test {

class SimulatedRank {
 public:
  struct Settings {
    std::string database = {};  // "": none
    Policy policy = Policy::kTune;
    Script script = {};
  };

  SimulatedRank(std::unique_ptr<distributed::Exchange> with, Settings settings)
      : exchange(std::move(with)), device(world) {
    world.random.seed(static_cast<unsigned>(exchange.rank()) + 1);
    ConfigSelectorChain::Settings chain;
    chain.store.user_path = settings.database;
    chain.policy = AutotunePolicy::of(settings.policy);
    chain.policy.process_budget = std::chrono::hours(1000);
    chain.tuner = tuner();
    Registry registry;
    registry.add_op<Scaling>();
    registry.add(scripted(world, std::move(settings.script)), {.platform = "test"});
    registry.add(scripted(world, reference_script()),
                 {.platform = std::string(kReferencePlatform)});
    context = std::make_unique<Context>(
        std::move(registry), [&](const Registry& kernels, EventBus& events) {
          return std::make_unique<ConfigSelectorChain>(kernels, events, chain);
        });
  }

  /// By the clock of its device.
  Tuner::Settings tuner() {
    Tuner::Settings settings;
    settings.now = [this] { return world.now(); };
    return settings;
  }

  static distributed::WantedProblem wanted(std::int64_t rows, std::int64_t flavour = 0) {
    return {AnyProblem::of<Scaling>({rows, flavour})};
  }
  std::string choice(std::int64_t rows, std::int64_t flavour = 0) const {
    const Choice choice = context->select<Scaling>({rows, flavour}, {.device = &device});
    return text_of(*choice.kernel, choice.config);
  }
  std::string digest() const { return distributed::decisions_digest(*context, device); }

  World world;
  CountingExchange exchange;
  FakeDevice device;
  std::unique_ptr<Context> context;
};

/// Calls work(rank) on a thread for each, and waits for all.
template <class Work>
void on_all(std::vector<std::unique_ptr<SimulatedRank>>& ranks, Work&& work) {
  std::vector<std::jthread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&work, &rank] { work(*rank); });
}

}  // namespace attune::test
