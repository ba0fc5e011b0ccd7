#include "tuning/tune_plan.hpp"

#include <algorithm>
#include <numeric>

#include <attune/distributed/partition.hpp>

namespace attune::cli {
namespace {

bool is_host(const Target& target) {
  return target.device->info().id.backend == cpu_device().info().id.backend;
}

}  // namespace

double estimated_call_us(const Target& target) {
  // What a device of the class comes to on such work, per second: the ratio of two problems counts.
  struct Rates {
    double bytes, flops, launch_us;
  };
  const Rates rates =
      is_host(target) ? Rates{20e9, 20e9 * target.device->info().cores, 1} : Rates{3e12, 50e12, 3};
  const double seconds = std::max(target.op->bytes(target.problem) / rates.bytes,
                                  target.op->flops(target.problem) / rates.flops);
  return rates.launch_us + seconds * 1e6;
}

void order_by_cost(std::vector<Target>& targets) {
  std::vector<std::pair<double, std::size_t>> costs;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double hits = static_cast<double>(targets[i].hits);
    costs.emplace_back(hits > 0 ? hits * estimated_call_us(targets[i]) : 0, i);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Target> ordered;
  ordered.reserve(targets.size());
  for (const auto& [cost, index] : costs) ordered.push_back(std::move(targets[index]));
  targets = std::move(ordered);
}

std::vector<std::size_t> longest_first(const std::vector<Target>& targets) {
  std::vector<std::size_t> order(targets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto unrecorded =
      std::find_if(order.begin(), order.end(), [&](std::size_t i) { return targets[i].hits == 0; });
  std::stable_sort(unrecorded, order.end(), [&](std::size_t a, std::size_t b) {
    return estimated_call_us(targets[a]) > estimated_call_us(targets[b]);
  });
  return order;
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
  constexpr double kHostSampleUs = 1000, kDeviceSampleUs = 200;
  const double each_us =
      distributed::tuning_cost_us(estimated_call_us(target), target.op->bytes(target.problem),
                                  is_host(target) ? kHostSampleUs : kDeviceSampleUs);
  const double most_s = std::chrono::duration<double>(budget).count();
  return std::min(most_s, static_cast<double>(candidates) * each_us / 1e6);
}

}  // namespace attune::cli
