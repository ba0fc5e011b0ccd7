// Contexts whose calls keep to a number of threads, or run on the program's own pool.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

#include <attune/attune.hpp>

#include "ops/attention_calls.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

/// A call with random-looking inputs, large enough for kernels to share among threads.
struct BigCall {
  BigCall() {
    unsigned state = 1;
    for (TensorView* view : {&q, &k, &v}) {
      auto* values = static_cast<float*>(view->data);
      for (std::size_t i = 0; i < kValues; ++i) {
        state = state * 1664525U + 1013904223U;
        values[i] = static_cast<float>(state >> 8) / static_cast<float>(1U << 24) - 0.5F;
      }
    }
  }
  std::vector<float> run(Context& context, std::string_view config) {
    ops::recurrent_attention_into({.o = o}, q, k, v,
                                  {.call = {.config = config, .context = &context}});
    const auto* values = static_cast<const float*>(o.data);
    return {values, values + kValues};
  }
  static constexpr std::size_t kValues = 2 * 256 * 8 * 64;
  Memory memory;
  TensorView q = memory.f32({2, 256, 8, 64});
  TensorView k = memory.f32({2, 256, 8, 64});
  TensorView v = memory.f32({2, 256, 8, 64});
  TensorView o = memory.f32({2, 256, 8, 64});
};

class MaxThreadsTest : public testing::Test {
 protected:
  ContextOptions options() const { return {.policy = Policy::kHeuristic, .database = ""}; }
  static std::string class_of(const Context& context) {
    return context.registry().devices().front()->info().device_class;
  }
};

TEST_F(MaxThreadsTest, AreNoPartOfTheKeyAtTheirDefault) {
  EXPECT_EQ(class_of(*make_context(options())), cpu_device().info().device_class);
}

TEST_F(MaxThreadsTest, AreThoseOfAProcessThatIsRestrictedToThem) {
  ContextOptions with = options();
  with.max_threads = 1;
  EXPECT_EQ(class_of(*make_context(with)), read_cpu_info(1).device_class);
  with.max_threads = 1 << 20;
  EXPECT_EQ(class_of(*make_context(with)), cpu_device().info().device_class) << "at most";
}

TEST_F(MaxThreadsTest, HoldForRequestsThatNameTheProcessesHost) {
  ContextOptions with = options();
  with.max_threads = 1;
  const auto context = make_context(with);
  const ops::RecurrentAttentionProblem problem{
      .B = 4, .T = 512, .H = 8, .Hkv = 8, .K = 64, .V = 64};
  const auto plan =
      Executor(*context).plan<ops::RecurrentAttention>(problem, {.device = &cpu_device()});
  EXPECT_EQ(plan.device().info().cores, 1);
  const Params params = plan.choice().kernel->params(plan.choice().config);
  const std::string* const threads = find_param(params, "threads");
  ASSERT_NE(threads, nullptr) << plan.choice().kernel->name();
  EXPECT_EQ(*threads, "1");
}

TEST_F(MaxThreadsTest, AreReadFromTheEnvironmentWhereNoneAreGiven) {
  setenv("ATTUNE_THREADS", "1", 1);
  EXPECT_EQ(class_of(*make_context(options())), read_cpu_info(1).device_class);
  ContextOptions with = options();
  with.max_threads = 1 << 20;
  EXPECT_EQ(class_of(*make_context(with)), cpu_device().info().device_class);
  for (const char* bad : {"0", "-1", "two", "1.5", ""}) {
    setenv("ATTUNE_THREADS", bad, 1);
    if (*bad == '\0') continue;
    try {
      make_context(options());
      ADD_FAILURE() << bad << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("ATTUNE_THREADS"));
    }
  }
  unsetenv("ATTUNE_THREADS");
}

TEST_F(MaxThreadsTest, LessThanOneIsAnError) {
  ContextOptions with = options();
  with.max_threads = 0;
  EXPECT_THROW(make_context(with), InvalidArgument);
}

TEST_F(MaxThreadsTest, AndThePoolDoNotChangeABit) {
  BigCall call;
  const auto plain = make_context(options());
  ContextOptions one = options();
  one.max_threads = 1;
  const auto on_one = make_context(one);
  ContextOptions own = options();
  std::atomic<int> loops = 0;
  own.parallel_for = [&](std::int64_t tasks, int, const auto& task) {
    ++loops;
    for (std::int64_t i = tasks; i-- > 0;) task(i);
  };
  const auto on_own_pool = make_context(own);
  for (const char* config :
       {"kernel=simd.recurrent_attention,threads=1", "kernel=simd.recurrent_attention,threads=4",
        "kernel=reference.recurrent_attention"}) {
    const std::vector<float> expected = call.run(*plain, config);
    for (Context* context : {on_one.get(), on_own_pool.get()}) {
      const std::vector<float> got = call.run(*context, config);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << config;
    }
  }
  if (usable_cores() > 1) {
    EXPECT_GE(loops, 2);
  }
}

TEST_F(MaxThreadsTest, OutputsOutliveTheContext) {
  Tensor o;
  BigCall call;
  {
    ContextOptions with = options();
    with.max_threads = 1;
    const auto context = make_context(with);
    o = ops::recurrent_attention(call.q, call.k, call.v, {.call = {.context = context.get()}}).o;
  }
  EXPECT_EQ(o.values<float>().size(), BigCall::kValues);
  o = Tensor();  // goes back to a device that is still there
}

}  // namespace
}  // namespace attune::test
