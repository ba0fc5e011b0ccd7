// Launching allocates nothing: neither the checks nor what is around them.
#include <cstddef>

#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"
#include "ops/decode_calls.hpp"
#include "ops/spy_context.hpp"
#include "support/allocation_count.hpp"

namespace attune::test {
namespace {

template <class Work>
std::size_t allocations_of(const Work& work) {
  const std::size_t before = allocation_count();
  work();
  return allocation_count() - before;
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
