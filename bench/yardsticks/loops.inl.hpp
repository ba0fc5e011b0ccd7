// The loops of loops.hpp, compiled once per instruction set.
//
// The includer defines ATTUNE_LOOPS_NAMESPACE and ATTUNE_LOOPS_LANES. No std:: function is called
// here: the linker keeps one copy of each, possibly this one.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "loops.hpp"

namespace attune::yardsticks::ATTUNE_LOOPS_NAMESPACE {

typedef float Vector __attribute__((vector_size(ATTUNE_LOOPS_LANES * 4)));

static void naive_recurrent(const NaiveRecurrentArgs& args, std::int64_t first_head,
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
        const std::int64_t state_row = (head * key_dim + i) * value_dim;
        float* __restrict state = args.state + state_row;
        if (token == 0 && args.initial_state) {
          const float* __restrict initial = args.initial_state + state_row;
          for (std::int64_t j = 0; j < value_dim; ++j) {
            state[j] = initial[j] * decay + k * v[j];
            o[j] += q * state[j];
          }
        } else {
          for (std::int64_t j = 0; j < value_dim; ++j) {
            state[j] = state[j] * decay + k * v[j];
            o[j] += q * state[j];
          }
        }
      }
    }
  }
}

constexpr int kChains = 12;  // two units a core, four to five cycles each: ten

static float multiply_add(std::int64_t steps) {
  Vector x[kChains];  // all different, or the compiler computes one
  for (int i = 0; i < kChains; ++i) x[i] = Vector{} + static_cast<float>(i);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (Vector& chain : x) chain = chain * 0.999F + 1.0F;
  }
  Vector sum{};
  for (const Vector& chain : x) sum += chain;
  return sum[0];
}

static void update(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= 0.999F;
}

static void copy(const float* __restrict from, float* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * 0.999F;
}

#if defined(__x86_64__)
static void copy_past_caches(const float* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + ATTUNE_LOOPS_LANES <= count; i += ATTUNE_LOOPS_LANES) {
    Vector x;
    __builtin_memcpy(&x, from + i, sizeof(x));
    x = x * 0.999F;
#if ATTUNE_LOOPS_LANES == 16
    _mm512_stream_ps(to + i, x);
#elif ATTUNE_LOOPS_LANES == 8
    _mm256_stream_ps(to + i, x);
#else
    _mm_stream_ps(to + i, x);
#endif
  }
  for (; i < count; ++i) to[i] = from[i] * 0.999F;
  _mm_sfence();
}
#else
constexpr auto copy_past_caches = nullptr;
#endif

static Loops loops(const char* isa) {
  return {
      isa,  naive_recurrent, multiply_add, std::int64_t{2} * kChains * ATTUNE_LOOPS_LANES, update,
      copy, copy_past_caches};
}

}  // namespace attune::yardsticks::ATTUNE_LOOPS_NAMESPACE
