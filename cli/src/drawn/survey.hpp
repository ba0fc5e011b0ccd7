// What a walk over problems found: times over the floor, by kernel, the worst, and cliffs: problems
// that take several times what their neighbours take for a byte.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drawn/point.hpp"
#include "output/table.hpp"

namespace attune::cli {

struct Measured {
  std::string_view walk;  // "random", "grid" or "beside"
  Point point;
  std::string op, problem;
  double median_us = 0;  // 0: no kernel took it, or there was no memory
  double floor_us = 0;   // of its least traffic
  std::string kernel = {}, config = {};

  bool was_timed() const { return median_us > 0; }
};

class Survey {
 public:
  /// A launch's own time is no fault of the problem's.
  explicit Survey(double launch_us) : launch_us_(launch_us) {}

  /// Returns its number.
  std::size_t add(Measured measured);
  const Measured& operator[](std::size_t number) const { return all_[number]; }
  std::size_t size() const { return all_.size(); }

  /// That two of them differ in one field alone, which is moved to its next value.
  void add_neighbours(std::size_t a, std::size_t b, std::string_view field);

  /// (time - launch) / max(floor, 1 us).
  double times_floor(const Measured& measured) const;
  /// Numbers of those that took longest over their floors, longest first, but for those that stand
  /// beside others.
  std::vector<std::size_t> worst(std::size_t most) const;

  /// Median, 90th percentile and worst: of each walk, of each of its kernels, and of its problems
  /// with 64 tokens and more that are on recurrent kernels, those that have the word in their name.
  Table summary() const;
  Table worst_table(std::size_t most) const;
  /// Pairs of neighbours, the steepest first.
  Table neighbours_table(std::size_t most) const;
  Table problems_table() const;

 private:
  struct Pair {
    std::size_t slow = 0, fast = 0;
    std::string_view field;
    double ratio = 1;
  };

  std::vector<double> sorted_times(const std::vector<const Measured*>& of) const;
  void add_summary(std::string_view walk, std::string_view name,
                   const std::vector<const Measured*>& of, std::size_t out_of, Table& table) const;

  double launch_us_;
  std::vector<Measured> all_;
  std::vector<Pair> pairs_;
};

}  // namespace attune::cli
