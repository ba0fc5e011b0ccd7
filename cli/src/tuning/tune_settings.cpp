#include "tuning/tune_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <attune/core/parallel_for.hpp>

#include "program/interrupt.hpp"
#include "tuning/shard.hpp"

namespace attune::cli {
namespace {

/// The share of this machine's cores that a worker has where each of `devices` has one, here and in
/// the processes that a launcher started beside this.
int host_threads(std::size_t devices) {
  const auto all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int ours = std::min(usable_cores(), all / local_ranks(process_environment()));
  return std::max(ours / static_cast<int>(std::max<std::size_t>(devices, 1)), 1);
}

bool is_isolated(const Invocation& call) {
  return call.options.one_of("isolate", {"on", "off"}).value_or("on") == "on";
}

IsolationSettings isolation_settings(const Invocation& call, std::size_t devices,
                                     std::shared_ptr<IdleWorkers> idle) {
  IsolationSettings settings;
  settings.plugins = call.options.texts("plugin");
  settings.timeout = call.options.duration("timeout").value_or(settings.timeout);
  settings.memory = default_worker_memory();
  settings.host_threads = host_threads(devices);
  settings.stop = interrupted;
  settings.idle = std::move(idle);
  return settings;
}

}  // namespace

std::shared_ptr<IdleWorkers> first_workers(const Invocation& call, bool dry) {
  auto workers = std::make_shared<IdleWorkers>();
  if (!dry && is_isolated(call) && call.options.flag("gpus")) {
    workers->put(IdleWorkers::kAnyDevice, start_worker(call.options.texts("plugin")));
  }
  return workers;
}

Tuner::Settings tuner_settings(const Invocation& call, std::uint64_t seed, std::size_t devices,
                               std::shared_ptr<IdleWorkers> idle) {
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
  if (is_isolated(call)) {
    settings.make_runner = [isolation = isolation_settings(call, devices, std::move(idle))](
                               const tuning::Workload& workload) {
      return make_isolated_runner(workload, isolation);
    };
  }
  return settings;
}

}  // namespace attune::cli
