#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/distributed/partition.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace attune::distributed {
namespace {

/// A problem with all that its lines say of it.
struct Problem {
  std::set<std::string> classes;
  double cost = 0;
  std::uint64_t order = 0;  // among those of equal cost: of no meaning
  int part = 0;
};

using Loads = std::map<std::string, std::vector<double>>;  // by class, of each part

/// The part whose devices of these classes have least to do; of equal ones the first.
std::size_t least_loaded(const Loads& loads, const std::set<std::string>& classes, int parts) {
  std::vector<double> sums(static_cast<std::size_t>(parts), 0.0);
  for (const std::string& name : classes) {
    const std::vector<double>& load = loads.at(name);
    std::transform(sums.begin(), sums.end(), load.begin(), sums.begin(), std::plus<>());
  }
  return static_cast<std::size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
}

constexpr double kBytesPerSecond = 3e12;  // of any accelerator: ratios count
constexpr double kFlopsPerSecond = 50e12;
constexpr double kLaunchUs = 3;

}  // namespace

std::vector<int> partition(std::span<const PartItem> items, int parts) {
  if (parts < 1) throw InvalidArgument(str("partition: ", parts, " parts: expected at least 1"));
  std::map<std::string, Problem> problems;
  for (const PartItem& item : items) {
    Problem& problem = problems[item.text];
    problem.classes.insert(item.device_class);
    problem.cost = std::max(problem.cost, item.cost);
  }
  std::vector<Problem*> longest_first;
  Loads loads;
  for (auto& [text, problem] : problems) {
    // By their texts, problems of two types would alternate, and each part have one of the types.
    problem.order = XXH3_64bits(text.data(), text.size());
    longest_first.push_back(&problem);
    for (const std::string& name : problem.classes) {
      loads.try_emplace(name, static_cast<std::size_t>(parts), 0.0);
    }
  }
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [](const Problem* a, const Problem* b) {
                     return std::pair(-a->cost, a->order) < std::pair(-b->cost, b->order);
                   });
  for (Problem* problem : longest_first) {
    const std::size_t part = least_loaded(loads, problem->classes, parts);
    problem->part = static_cast<int>(part);
    for (const std::string& name : problem->classes) loads[name][part] += problem->cost;
  }
  std::vector<int> result;
  result.reserve(items.size());
  for (const PartItem& item : items) result.push_back(problems.at(item.text).part);
  return result;
}

std::string item_text(const OpInfo& op, ProblemRef problem, std::string_view platform) {
  return str(op.kernel_op, '\n', platform, '\n', op.text(problem, false));
}

double tuning_cost_us(const OpInfo& op, ProblemRef problem) {
  constexpr double kDeviceSampleUs = 200;
  const double seconds =
      std::max(op.bytes(problem) / kBytesPerSecond, op.flops(problem) / kFlopsPerSecond);
  return tuning_cost_us(kLaunchUs + seconds * 1e6, op.bytes(problem), kDeviceSampleUs);
}

double tuning_cost_us(double call_us, double bytes, double sample_us) {
  constexpr double kSamples = 12;      // that a candidate is timed before it leaves, on average
  constexpr double kCheckUs = 4000;    // against the oracle, on the reduced problem
  constexpr double kBytesPerUs = 6e4;  // of tensors that are drawn and copied to the device
  constexpr double kMostBytes = 2e8;   // then a problem has one copy, and its states are half of it
  return kCheckUs + 2 * call_us + kSamples * std::max(sample_us, call_us) +
         std::min(bytes, kMostBytes) / kBytesPerUs;
}

}  // namespace attune::distributed
