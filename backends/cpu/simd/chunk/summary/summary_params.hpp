// The same kernel compiled for several instruction sets.
#pragma once

#include <cstdint>

#include "cpu/simd/chunk/chunk_params.hpp"

namespace attune::cpu::simd::chunk::summary {

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, head, tile of V), tile fastest, up to the final states.
  /// `params` need no q and no o; their scale is that of what is written. `inclusive`: a token's own
  /// decay acts on it. `scratch` is aligned to 64 bytes and used by no other thread; it need not be
  /// initialised.
  void (*run)(const Tiling& tiling, const ForwardParams& params, bool inclusive, std::int64_t first,
              std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::chunk::summary
