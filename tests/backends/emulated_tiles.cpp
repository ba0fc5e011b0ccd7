// The kernels of AMX tile registers with registers in memory, for any CPU: linked into a test
// program they take the place of the library's objects.
#define ATTUNE_EMULATED_TILES
#define ATTUNE_SIMD_NAMESPACE emulated_tiles
#define ATTUNE_SIMD_LANES 16
#include "cpu/simd/chunk_tiles/backward/backward.inl.hpp"
#include "cpu/simd/chunk_tiles/chunk_tiles.inl.hpp"

namespace attune::cpu::simd::chunk_tiles {

template <>
Instance instance<Isa::kAmxBf16>() {
  return emulated_tiles::chunk_tiles::instance();
}

template <>
backward::Instance backward::instance<Isa::kAmxBf16>() {
  return emulated_tiles::chunk_tiles::backward::instance();
}

}  // namespace attune::cpu::simd::chunk_tiles
