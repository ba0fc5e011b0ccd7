#include "drawn/survey.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include <attune/core/error.hpp>

namespace attune::cli {
namespace {

bool is_recurrent(const Measured& measured) {
  return measured.kernel.find("recurrent") != std::string::npos;
}

bool is_long(const Measured& measured) {
  constexpr std::int64_t kLong = 64;
  return measured.point.number("T") >= kLong;
}

/// Of sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(rank, sorted.size() - 1)];
}

}  // namespace

std::size_t Survey::add(Measured measured) {
  all_.push_back(std::move(measured));
  return all_.size() - 1;
}

double Survey::times_floor(const Measured& measured) const {
  return std::max(measured.median_us - launch_us_, 0.0) / std::max(measured.floor_us, 1.0);
}

void Survey::add_neighbours(std::size_t a, std::size_t b, std::string_view field) {
  if (a == b || !all_[a].was_timed() || !all_[b].was_timed()) return;
  // Below its floor, in a cache, nothing is faster than anything.
  const double of_a = std::max(times_floor(all_[a]), 1.0);
  const double of_b = std::max(times_floor(all_[b]), 1.0);
  const Pair pair = of_a > of_b ? Pair{a, b, field, of_a / of_b} : Pair{b, a, field, of_b / of_a};
  const bool known = std::ranges::any_of(pairs_, [&](const Pair& other) {
    return other.slow == pair.slow && other.fast == pair.fast;
  });
  if (!known) pairs_.push_back(pair);
}

std::vector<std::size_t> Survey::worst(std::size_t most) const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].was_timed() && all_[i].walk != "beside") numbers.push_back(i);
  }
  std::ranges::stable_sort(numbers, std::greater(),
                           [&](std::size_t i) { return times_floor(all_[i]); });
  numbers.resize(std::min(numbers.size(), most));
  return numbers;
}

std::vector<double> Survey::sorted_times(const std::vector<const Measured*>& of) const {
  std::vector<double> times;
  times.reserve(of.size());
  for (const Measured* each : of) times.push_back(times_floor(*each));
  std::ranges::sort(times);
  return times;
}

void Survey::add_summary(std::string_view walk, std::string_view name,
                         const std::vector<const Measured*>& of, std::size_t out_of,
                         Table& table) const {
  const std::vector<double> times = sorted_times(of);
  const auto at = [&](double share) {
    return times.empty() ? Cell() : Cell(quantile(times, share));
  };
  table.add({walk, name, of.size(),
             100.0 * static_cast<double>(of.size()) /
                 static_cast<double>(std::max<std::size_t>(out_of, 1)),
             at(0.5), at(0.9), at(1)});
}

Table Survey::summary() const {
  Table table({"walk", "kernel", "problems", "percent", "median", "p90", "worst"});
  for (const std::string_view walk : {"random", "grid", "beside"}) {
    std::vector<const Measured*> all, long_ones, recurrent;
    std::map<std::string_view, std::vector<const Measured*>> by_kernel;
    for (const Measured& each : all_) {
      if (each.walk != walk || !each.was_timed()) continue;
      all.push_back(&each);
      by_kernel[each.kernel].push_back(&each);
      if (!is_long(each)) continue;
      long_ones.push_back(&each);
      if (is_recurrent(each)) recurrent.push_back(&each);
    }
    if (all.empty()) continue;
    add_summary(walk, "all", all, all.size(), table);
    add_summary(walk, "recurrent ones, of T >= 64", recurrent, long_ones.size(), table);
    for (const auto& [kernel, of] : by_kernel) add_summary(walk, kernel, of, all.size(), table);
  }
  return table;
}

Table Survey::worst_table(std::size_t most) const {
  Table table(
      {"times_floor", "median_us", "floor_us", "op", "problem", "seed", "kernel", "config"});
  for (const std::size_t number : worst(most)) {
    const Measured& each = all_[number];
    table.add({times_floor(each), each.median_us, each.floor_us, each.op, each.problem,
               each.point.seed, each.kernel, each.config});
  }
  return table;
}

Table Survey::neighbours_table(std::size_t most) const {
  std::vector<Pair> pairs = pairs_;
  std::ranges::stable_sort(pairs, std::greater(), &Pair::ratio);
  pairs.resize(std::min(pairs.size(), most));
  Table table({"ratio", "op", "problem", "seed", "times_floor", "median_us", "kernel", "field",
               "neighbour", "neighbour_times_floor", "neighbour_us", "neighbour_kernel"});
  for (const Pair& pair : pairs) {
    const Measured& slow = all_[pair.slow];
    const Measured& fast = all_[pair.fast];
    table.add({pair.ratio, slow.op, slow.problem, slow.point.seed, times_floor(slow),
               slow.median_us, slow.kernel, pair.field, fast.point[pair.field], times_floor(fast),
               fast.median_us, fast.kernel});
  }
  return table;
}

Table Survey::problems_table() const {
  Table table({"walk", "op", "problem", "seed", "median_us", "floor_us", "times_floor", "kernel",
               "config"});
  for (const Measured& each : all_) {
    table.add({each.walk, each.op, each.problem, each.point.seed, Cell::unless_zero(each.median_us),
               each.floor_us, each.was_timed() ? Cell(times_floor(each)) : Cell(), each.kernel,
               each.config});
  }
  return table;
}

}  // namespace attune::cli
