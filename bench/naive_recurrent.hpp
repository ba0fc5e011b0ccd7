// The naive loop under the name that the benchmarks of single kernels call it by.
#pragma once

#include <cstdint>

#include "yardsticks/loops.hpp"

namespace attune::bench {

using yardsticks::NaiveRecurrentArgs;

/// Runs heads [first_head, last_head), vectorised for the widest instruction set there is.
inline void naive_recurrent(const NaiveRecurrentArgs& args, std::int64_t first_head,
                            std::int64_t last_head) {
  yardsticks::loops_of_this_cpu().front().naive_recurrent(args, first_head, last_head);
}

}  // namespace attune::bench
