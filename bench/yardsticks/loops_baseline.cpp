// The loops for the compiler's default target.
#define ATTUNE_LOOPS_NAMESPACE baseline
#define ATTUNE_LOOPS_LANES 4
#include "loops.inl.hpp"
#include "loops_isa.hpp"

namespace attune::yardsticks {

Loops loops_baseline() { return baseline::loops("baseline"); }

}  // namespace attune::yardsticks
