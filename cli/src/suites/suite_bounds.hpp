// How the rows of a suite stand against what they are held to: one word a row, and one line for
// each bound that says how many rows reach it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "output/table.hpp"
#include "suites/suites.hpp"

namespace attune::cli {

/// One measured quantity of a row with its bound.
struct Reading {
  enum class Sense { kAtLeast, kAtMost };

  std::string_view quantity;  // the column it stands in: "share", "speedup", ...
  Bound bound;
  Sense sense = Sense::kAtLeast;
  double value = 0;

  bool is_bound() const { return bound.must != 0; }
  bool reaches(double limit) const {
    return sense == Sense::kAtLeast ? value >= limit : value <= limit;
  }
  bool reaches_must() const { return reaches(bound.must); }
  bool reaches_goal() const { return reaches(bound.goal == 0 ? bound.must : bound.goal); }
};

/// "goal" or "must" when all of them reach it, else "missed: share, scaling"; empty where nothing
/// is bound.
Cell verdict(std::span<const Reading> readings);

/// The bounds of a run, each with the rows it is for.
class BoundsReached {
 public:
  /// `about` and `threads` say which rows; `problem` is the row's.
  void add(std::string_view about, int threads, std::string_view problem, const Reading& reading);

  /// In the order in which they came.
  Table table() const;

 private:
  struct Line {
    std::string about;
    int threads = 0;
    Reading worst;
    std::string worst_problem = {};
    int rows = 0, reach_must = 0, reach_goal = 0;
  };
  std::vector<Line> lines_;
};

}  // namespace attune::cli
