// Build with -O3: g++ 12 does not vectorise at -O2.
#include "naive_recurrent.hpp"

#if defined(__x86_64__)
#define ATTUNE_BENCH_WIDEST \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATTUNE_BENCH_WIDEST
#endif

namespace attune::bench {

ATTUNE_BENCH_WIDEST
void naive_recurrent(const NaiveRecurrentArgs& args, std::int64_t first_head,
                     std::int64_t last_head) {
  const std::int64_t key_dim = args.key_dim;
  const std::int64_t value_dim = args.value_dim;
  for (std::int64_t head = first_head; head < last_head; ++head) {
    for (std::int64_t token = 0; token < args.tokens; ++token) {
      const std::int64_t row = token * args.heads + head;
      const float* __restrict v = args.v + row * value_dim;
      float* __restrict o = args.o + row * value_dim;
      for (std::int64_t j = 0; j < value_dim; ++j) o[j] = 0.0F;
      for (std::int64_t i = 0; i < key_dim; ++i) {
        const float q = args.q[row * key_dim + i] * args.scale;
        const float k = args.k[row * key_dim + i];
        const float decay = args.decay ? args.decay[row * key_dim + i] : 1.0F;
        float* __restrict state = args.state + (head * key_dim + i) * value_dim;
        for (std::int64_t j = 0; j < value_dim; ++j) {
          state[j] = state[j] * decay + k * v[j];
          o[j] += q * state[j];
        }
      }
    }
  }
}

}  // namespace attune::bench
