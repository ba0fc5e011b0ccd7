// Confirmation: whether the winner of a race is really faster than what it is to replace.
#pragma once

#include "search/race.hpp"

namespace attune::tuning {

/// Whether `challenger` takes less time than `baseline` by at least `margin` (0.015: 1.5 %).
///
/// The two are timed in turn, in sequences A B B A and B A A B, so that a drifting clock favours
/// neither. A sequence gives one ratio, of the shorter sample of each; eight sequences are a batch.
/// It is faster when, after three to five batches, the median ratio of each batch is below 1, that
/// of all is at most 1 - margin, and its 99 % confidence interval ends below 1.
///
/// When the budget ends first, it has to be faster by Settings::drop_ratio in all that was
/// measured, the race included. One that fails has lost, and its failure is noted in it.
bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& baseline, const Racer& anchor, double margin);

/// What the fewest batches take, for the race to leave that much of the budget.
double confirmation_us(const Racer& baseline);

}  // namespace attune::tuning
