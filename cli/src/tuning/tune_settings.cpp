#include "tuning/tune_settings.hpp"

#include <chrono>
#include <memory>

#include "process/isolated_runner.hpp"
#include "program/interrupt.hpp"

namespace attune::cli {
namespace {

IsolationSettings isolation_settings(const Invocation& call) {
  IsolationSettings settings;
  settings.plugins = call.options.texts("plugin");
  settings.timeout = call.options.duration("timeout").value_or(settings.timeout);
  settings.memory = default_worker_memory();
  settings.stop = interrupted;
  settings.idle = std::make_shared<IdleWorkers>();
  return settings;
}

}  // namespace

Tuner::Settings tuner_settings(const Invocation& call, std::uint64_t seed) {
  Tuner::Settings settings;
  constexpr std::int64_t kMost = 1'000'000;
  settings.warmup =
      static_cast<int>(call.options.integer("warmup", 0, kMost).value_or(settings.warmup));
  settings.iters =
      static_cast<int>(call.options.integer("iters", 1, kMost).value_or(settings.iters));
  settings.prepare_budget =
      call.options.duration("prepare-budget").value_or(std::chrono::minutes(2));
  settings.seed = seed;
  settings.stop = interrupted;
  if (call.options.one_of("isolate", {"on", "off"}).value_or("on") == "on") {
    settings.make_runner = [isolation =
                                isolation_settings(call)](const tuning::Workload& workload) {
      return make_isolated_runner(workload, isolation);
    };
  }
  return settings;
}

}  // namespace attune::cli
