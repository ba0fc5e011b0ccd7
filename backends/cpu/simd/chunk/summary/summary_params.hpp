// The same kernel compiled for several instruction sets.
#pragma once

#include <cstdint>

#include "cpu/simd/chunk/chunk_params.hpp"

namespace attune::cpu::simd::chunk::summary {

/// [N, H, K] or [N, H, V].
struct SumTensor {
  float* data = nullptr;
  std::int64_t sequence_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t channel_stride = 0;
};

struct Params : ForwardParams {  // no q and no o; its scale is that of what is written
  bool inclusive = false;        // a token's own decay acts on what it writes
  SumTensor gk_sum, gv_sum;      // gv_sum where there is a gv
};

/// What lies behind the walk's scratch memory: sums, as double, and rows of a chunk's loops.
struct SumScratch {
  std::int64_t keys = 0;        // double [K in whole panels]
  std::int64_t values = 0;      // double [tile]
  std::int64_t key_rows = 0;    // [2, K in whole panels]
  std::int64_t value_rows = 0;  // [2, tile]
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, head, tile of V), tile fastest, up to the final states
  /// and the sums. `scratch` is aligned to 64 bytes and used by no other thread; it need not be
  /// initialised.
  void (*run)(const Tiling& tiling, const SumScratch& sums, const Params& params,
              std::int64_t first, std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::chunk::summary
