#include "loops.hpp"

#include <vector>

#include "loops_isa.hpp"

namespace attune::yardsticks {

std::span<const Loops> loops_of_this_cpu() {
  static const std::vector<Loops> loops = [] {
    std::vector<Loops> found;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2 && avx512) found.push_back(loops_avx512());
    if (avx2) found.push_back(loops_avx2());
#endif
    found.push_back(loops_baseline());
    return found;
  }();
  return loops;
}

std::optional<TileProducts> tile_products() {
#if defined(__x86_64__)
  return tile_products_amx_bf16();
#else
  return std::nullopt;
#endif
}

}  // namespace attune::yardsticks
