// The baseline of the CPU benchmarks: recurrent attention as one would first write it in C++.
//
// Per head, four nested loops over t, i and j, in fp32, dense tensors, the decay already
// exponentiated. The compiler vectorises it for the widest instruction set of the machine, so a
// speed-up over it is not a speed-up over scalar code.
#pragma once

#include <cstdint>

namespace attune::bench {

/// All tensors are dense: q, k [T, H, K], v, o [T, H, V], decay [T, H, K], state [H, K, V] (read
/// and written).
struct NaiveRecurrentArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* decay = nullptr;  // exp of the gate; null for none
  float* o = nullptr;
  float* state = nullptr;
  std::int64_t tokens = 0;     // T
  std::int64_t heads = 0;      // H
  std::int64_t key_dim = 0;    // K
  std::int64_t value_dim = 0;  // V
  float scale = 1.0F;
};

/// Runs heads [first_head, last_head).
void naive_recurrent(const NaiveRecurrentArgs& args, std::int64_t first_head,
                     std::int64_t last_head);

}  // namespace attune::bench
