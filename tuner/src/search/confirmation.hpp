// The last word: two candidates in alternation.
#pragma once

#include "search/race.hpp"

namespace attune::tuning {

/// Whether `challenger` is at least `margin` faster than `holder` (0.015: takes 1.5 % less time).
/// Measured in exchanges A B B A and B A A B, which a drifting clock does not favour either in;
/// what counts is the shorter sample of each. Of three to five bouts of eight exchanges the median
/// of each is below 1, that of all shows the margin, and their 99 % interval ends below 1. When the
/// budget ends before that, the challenger must have been much faster (Settings::drop_ratio) in all
/// that was measured, the race included. One that fails has lost, and has its failure noted.
bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& holder, const Racer& anchor, double margin);

/// What the fewest bouts take against `holder`, for the race to leave as much of the budget.
double duel_us(const Racer& holder);

}  // namespace attune::tuning
