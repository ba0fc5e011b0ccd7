// The last word: two candidates in alternation.
#pragma once

#include "race.hpp"

namespace attune::tuning {

/// Whether `challenger` is at least `margin` faster than `holder` (0.015: takes 1.5 % less time).
/// Measured in the order A B B A, which a drifting clock does not favour either in. When the budget
/// ends before there is enough of that, the race's samples count, and the less there is to go by,
/// the more it takes. One that fails has lost, and has its failure noted.
bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& holder, const Racer& anchor, double margin);

}  // namespace attune::tuning
