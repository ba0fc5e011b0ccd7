// Launching allocates nothing: neither the checks nor what is around them.
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"
#include "ops/decode_calls.hpp"
#include "ops/spy_context.hpp"

namespace {
thread_local long allocations = 0;
}  // namespace

// Not inlined, or GCC sees malloc and delete, or new and free, and warns of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace attune::test {
namespace {

template <class Work>
long allocations_of(const Work& work) {
  const long before = allocations;
  work();
  return allocations - before;
}

TEST(Allocation, IsCounted) {
  EXPECT_GT(allocations_of([] { Memory().f32({1000}); }), 0);
}

TEST(Allocation, DoesNotHappenWhenAForwardPlanIsLaunched) {
  SpyContext spies;
  ForwardCall call;
  call.pack();
  call.options.g = call.memory.f32({1, kT, kH});
  call.options.g_gamma = call.g_gamma();
  call.options.initial_state = call.state();
  call.out.final_state = call.state();
  call.options.want_final_state = true;
  call.options.call.context = &spies.context();
  const auto plan = ops::plan_recurrent_attention(call.q, call.k, call.v, call.options);
  EXPECT_EQ(
      allocations_of([&] {
        plan.launch(ops::recurrent_attention_args(call.out, call.q, call.k, call.v, call.options));
      }),
      0);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST(Allocation, DoesNotHappenWhenABackwardPlanIsLaunched) {
  SpyContext spies;
  BackwardCall call;
  call.options.call.context = &spies.context();
  const auto plan =
      ops::plan_recurrent_attention_backward(call.q, call.k, call.v, call.gradients, call.options);
  EXPECT_EQ(allocations_of([&] {
              plan.launch(ops::recurrent_attention_backward_args(call.out, call.q, call.k, call.v,
                                                                 call.gradients, call.options));
            }),
            0);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST(Allocation, DoesNotHappenWhenADecodePlanIsLaunched) {
  SpyContext spies;
  LightningDecodeCall call;
  call.slots(std::vector<std::int32_t>{3, -1, 0});
  call.options.call.context = &spies.context();
  const auto plan = ops::plan_lightning_decode(call.q, call.k, call.v, call.state, call.options);
  EXPECT_EQ(allocations_of([&] {
              plan.launch(ops::lightning_decode_args(call.o, call.q, call.k, call.v, call.state,
                                                     call.options));
            }),
            0);
  EXPECT_EQ(spies.spy.runs, 1);
}

}  // namespace
}  // namespace attune::test
