// The same loops compiled for several instruction sets.
#pragma once

#include "loops.hpp"

namespace attune::yardsticks {

Loops loops_baseline();
Loops loops_avx2();
Loops loops_avx512();
TileProducts tile_products_amx_bf16();

}  // namespace attune::yardsticks
