#include "tuning/tune_plan.hpp"

#include <algorithm>
#include <tuple>

#include <attune/distributed/partition.hpp>

namespace attune::cli {

double estimated_call_us(const Target& target) {
  // What a device of the class comes to on such work, per second: the ratio of two problems counts.
  struct Rates {
    double bytes, flops, launch_us;
  };
  const DeviceInfo& info = target.device->info();
  const bool host = info.id.backend == cpu_device().info().id.backend;
  const Rates rates = host ? Rates{20e9, 20e9 * info.cores, 1} : Rates{3e12, 50e12, 3};
  const double seconds = std::max(target.op->bytes(target.problem) / rates.bytes,
                                  target.op->flops(target.problem) / rates.flops);
  return rates.launch_us + seconds * 1e6;
}

void order_by_cost(std::vector<Target>& targets, bool longest_first) {
  struct Rank {
    double recorded, tuning;
    std::size_t index;
  };
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double us = estimated_call_us(targets[i]);
    const double hits = static_cast<double>(targets[i].hits);
    ranks.push_back(
        {hits > 0 ? hits * us : 0, longest_first ? distributed::tuning_cost_us(us) : 0, i});
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
    return std::tie(a.recorded, a.tuning) > std::tie(b.recorded, b.tuning);
  });
  std::vector<Target> ordered;
  ordered.reserve(targets.size());
  for (const Rank& rank : ranks) ordered.push_back(std::move(targets[rank.index]));
  targets = std::move(ordered);
}

std::size_t candidate_count(const CommandContext& command, const Target& target) {
  std::size_t count = 0;
  const DeviceInfo& info = target.device->info();
  const Request request = command.request(target);
  const std::string_view platform = request.platform.view();
  for (const RegisteredKernel* kernel :
       command.registry().kernels(target.op->name, platform, info.id.backend.view())) {
    const bool oracle = kernel->at.platform.view() == kReferencePlatform;
    if (oracle && platform == kAutoPlatform) continue;  // competes only when nothing else does
    if (kernel->kernel->erased_supports(target.problem, info)) {
      count += kernel->kernel->candidate_count(target.problem, info).count;
    }
  }
  return count;
}

double estimated_tuning_s(const Target& target, std::size_t candidates,
                          std::chrono::milliseconds budget) {
  const double each_us = distributed::tuning_cost_us(estimated_call_us(target));
  const double most_s = std::chrono::duration<double>(budget).count();
  return std::min(most_s, static_cast<double>(candidates) * each_us / 1e6);
}

}  // namespace attune::cli
