// The loops for AVX-512.
#define ATTUNE_LOOPS_NAMESPACE avx512
#define ATTUNE_LOOPS_LANES 16
#include "loops.inl.hpp"
#include "loops_isa.hpp"

namespace attune::yardsticks {

Loops loops_avx512() { return avx512::loops("avx512"); }

}  // namespace attune::yardsticks
