// A random schedule of a serving engine on a pool of states: prompts in random pieces, alone or
// packed with rows that decode; steps of several tokens in the three ways, of which some are
// accepted; sequences that go on from a snapshot of another.
#pragma once

#include <cstdint>
#include <string>

#include "support/kernel_runs.hpp"

namespace attune::test {

/// What serves: a layer's sizes and types.
struct ServedModel {
  DType dtype = DType::kF32, states = DType::kF32;
  std::string gate = {};  // "g", "gk", "gamma"
  std::int64_t K = 0, V = 0;

  /// As fields of a problem.
  std::string text() const;
};

/// Runs the schedule that `seed` makes: packed batches on `on` where it takes them, the others and
/// steps on its platform. Expects that each sequence's outputs are those of one recurrence over it
/// on the reference, that rows of padding are zero whatever is in them, and that slots which a call
/// does not write keep their bits; ends with the first step of which that is not so. Returns how
/// many batches `on` had.
int run_serving_schedule(std::uint64_t seed, const KernelOnDevice& on, const ServedModel& model);

/// Of a kernel of heuristic_context().
std::string platform_of(const ErasedKernel& kernel);

}  // namespace attune::test
