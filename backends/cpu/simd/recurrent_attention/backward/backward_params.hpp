// One launch of the recurrent backward kernel: tensors, sizes and how they are cut, no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::recurrent_attention::backward {

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
/// K and V are padded to whole vectors.
struct Scratch {
  /// What both sides have: the channels of K with q, k and their decays, those of V with do, v and
  /// gv.
  struct Side {
    std::int64_t coefficients = 0;  // see cpu/simd/vector/pass_keys.inl.hpp
    std::int64_t reads = 0;         // [tokens, channels] q or do, as the next two
    std::int64_t writes = 0;        // k or v
    std::int64_t decays = 0;
    std::int64_t totals = 0;  // [channels], as the next
    std::int64_t carries = 0;
    // [tokens, channels] what a pass adds up: dq or o, dk or dv. Passes take turns.
    std::int64_t sums[2] = {};
    std::int64_t terms = 0;      // [T, channels] q dq or do o, when the side has gates; [T, lanes]
                                 // where all channels decay alike
    std::int64_t gate = 0;       // [channels] the gradient of the gates at the current token
    std::int64_t group_sum = 0;  // [T, channels] dk or dv of the heads so far, with a group
  };
  /// n tokens of a pass make n (n + 1) / 2 pairs, and n is 4 at most.
  static constexpr std::int64_t kPairsPerToken = 4;
  Side keys, values;
  std::int64_t state = 0;        // [V, K], as the next
  std::int64_t dstate = 0;       // the gradient of the loss with respect to the state
  std::int64_t value_pairs = 0;  // [T, kPairsPerToken]: a pass's pairs from its first token on
  std::int64_t checkpoints = 0;  // [segments - 1, V, K], when there are gates
  std::int64_t zeros = 0;        // [V]: a row of do where it is not given
  std::int64_t size = 0;
};

struct Params : BackwardParams {
  int tokens_per_pass = 1;
  bool stream = false;              // gradients are written past the caches
  std::int64_t segment_tokens = 1;  // tokens between two checkpoints
  Scratch scratch;
};

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, kv head), kv head fastest.
  /// `scratch` is aligned to 64 bytes and used by no other
  /// thread; it need not be initialised.
  void (*run)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::recurrent_attention::backward
