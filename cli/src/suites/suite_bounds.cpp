#include "suites/suite_bounds.hpp"

#include <algorithm>

#include "output/text.hpp"

namespace attune::cli {

Cell verdict(std::span<const Reading> readings) {
  bool any = false;
  bool goal = true;
  std::vector<std::string> missed;
  for (const Reading& reading : readings) {
    if (!reading.is_bound()) continue;
    any = true;
    goal &= reading.reaches_goal();
    if (!reading.reaches_must()) missed.emplace_back(reading.quantity);
  }
  if (!any) return {};
  if (!missed.empty()) return {"missed: " + join(missed, ", "), Tone::kBad};
  return {goal ? "goal" : "must", Tone::kGood};
}

void BoundsReached::add(std::string_view about, int threads, std::string_view problem,
                        const Reading& reading) {
  if (!reading.is_bound()) return;
  auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& other) {
    return other.about == about && other.threads == threads &&
           other.worst.quantity == reading.quantity && other.worst.bound == reading.bound;
  });
  if (line == lines_.end()) {
    lines_.push_back({.about = std::string(about), .threads = threads, .worst = reading});
    line = std::prev(lines_.end());
  }
  if (line->rows == 0 || !reading.reaches(line->worst.value)) {
    line->worst = reading;
    line->worst_problem = problem;
  }
  ++line->rows;
  line->reach_must += reading.reaches_must() ? 1 : 0;
  line->reach_goal += reading.reaches_goal() ? 1 : 0;
}

Table BoundsReached::table() const {
  Table table({"about", "threads", "quantity", "must", "goal", "rows", "reach_must", "reach_goal",
               "worst", "worst_problem"});
  for (const Line& line : lines_) {
    table.add({line.about, line.threads, line.worst.quantity, line.worst.bound.must,
               Cell::unless_zero(line.worst.bound.goal), line.rows, line.reach_must,
               line.worst.bound.goal == 0 ? Cell() : Cell(line.reach_goal), line.worst.value,
               line.worst_problem});
  }
  return table;
}

}  // namespace attune::cli
