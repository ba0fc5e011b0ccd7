// The loops for AVX2.
#define ATTUNE_LOOPS_NAMESPACE avx2
#define ATTUNE_LOOPS_LANES 8
#include "loops.inl.hpp"
#include "loops_isa.hpp"

namespace attune::yardsticks {

Loops loops_avx2() { return avx2::loops("avx2"); }

}  // namespace attune::yardsticks
