// Kernels that prepare: when, how often, and what happens when they cannot.
#include <atomic>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <attune/core/executor.hpp>
#include <attune/core/prepared_kernel.hpp>
#include <attune/framework.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy_op.hpp"

namespace attune::test {
namespace {

/// What a factor's "compiler" makes.
struct Factor {
  float value = 0;
};

std::atomic<int> made = 0;
std::atomic<int> refused_unroll = 0;  // no such config can be prepared

class PreparedToy final : public PreparedKernel<ToyConfig, Factor> {
 public:
  std::string_view name() const noexcept override { return "test.prepared"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  ToyConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  std::string prepare_key(const Problem&, const ToyConfig& config) const override {
    return std::to_string(config.unroll);
  }
  std::shared_ptr<const Factor> prepare(const Problem&, const ToyConfig& config,
                                        const PrepareSite&) const override {
    if (config.unroll == refused_unroll) throw std::runtime_error("no compiler for it");
    ++made;
    return std::make_shared<const Factor>(Factor{2});
  }
  void run_with(const Factor& factor, const Problem& problem, const Args& args, const ToyConfig&,
                const LaunchSite&) const override {
    for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = factor.value * args.x[i];
  }
};

/// The host, with streams that may be capturing.
class CapturingDevice : public Device {
 public:
  const DeviceInfo& info() const noexcept override { return cpu_device().info(); }
  void* allocate(std::size_t bytes, void* s) const override {
    return cpu_device().allocate(bytes, s);
  }
  void deallocate(void* p, void* s) const noexcept override { cpu_device().deallocate(p, s); }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* s) const override {
    cpu_device().copy_to_device(to, from, bytes, s);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* s) const override {
    cpu_device().copy_to_host(to, from, bytes, s);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* s) const override {
    cpu_device().fill(to, value, bytes, s);
  }
  void synchronize(void*) const override {}
  bool is_capturing(void* stream) const noexcept override { return stream != nullptr; }
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    return cpu_device().time_us(launch, repeats);
  }
};

class Preparing : public ::testing::Test {
 protected:
  Preparing() {
    made = 0;
    refused_unroll = 0;
  }
  std::unique_ptr<Context> context(Policy policy) const {
    return make_framework_context({.register_kernels = {[](Registry& registry) {
                                     registry.add_op<ToyOp>();
                                     registry.add(std::make_unique<ToyKernel>("reference.toy"),
                                                  {.platform = "reference", .backend = "cpu"});
                                     registry.add(std::make_unique<PreparedToy>(),
                                                  {.platform = "test", .backend = "cpu"});
                                   }},
                                   .policy = policy,
                                   .database = folder.file("user.db")});
  }
  static std::vector<float> doubled(Context& in, const Request& request) {
    const std::vector<float> x{1, 2, 3};
    std::vector<float> y(3);
    Executor(in).run<ToyOp>({.rows = 3}, {x.data(), y.data()}, request);
    return y;
  }
  static std::string text_of(const Choice& choice) {
    return config_text(*choice.kernel, choice.config);
  }
  const std::vector<float> expected{2, 4, 6};
  TemporaryFolder folder;
  CapturingDevice device;
  Request request{.device = &cpu_device(), .platform = "test"};
};

TEST_F(Preparing, HappensOnceForAKeyHoweverManyCallsPlansAndThreadsThereAre) {
  const auto in = context(Policy::kHeuristic);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(doubled(*in, request), expected); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto plan = Executor(*in).plan<ToyOp>({.rows = 100}, request);
  EXPECT_NE(plan.choice().prepared, nullptr);
  EXPECT_EQ(made, 1);
}

TEST_F(Preparing, IsAnEventWithItsTime) {
  const auto in = context(Policy::kHeuristic);
  std::vector<std::string> seen;
  const auto events = in->events().subscribe([&](const Event& event) {
    if (event.kind != EventKind::kPrepared) return;
    EXPECT_GE(event.prepare_us, 0);
    seen.push_back(str(event.kernel, ' ', event.config, ": ", event.reason));
  });
  doubled(*in, request);
  doubled(*in, request);
  EXPECT_EQ(seen, std::vector<std::string>{"test.prepared unroll=1: made"});
}

TEST_F(Preparing, OfATuningIsTimedInItsEvent) {
  const auto in = context(Policy::kTune);
  double prepare_us = 0;
  const auto events = in->events().subscribe([&](const Event& event) {
    if (event.kind == EventKind::kTuneFinished) prepare_us = event.prepare_us;
  });
  doubled(*in, request);
  EXPECT_GT(prepare_us, 0);
}

TEST_F(Preparing, NeverHappensWhileTheStreamIsCapturing) {
  const auto in = context(Policy::kHeuristic);
  int stream = 0;
  Request capturing{.device = &device, .platform = "test", .stream = &stream};
  EXPECT_THROW(doubled(*in, capturing), ExecutionError);
  EXPECT_EQ(made, 0);
  Request before = capturing;
  before.stream = nullptr;
  EXPECT_EQ(doubled(*in, before), expected);
  EXPECT_EQ(doubled(*in, capturing), expected);
  EXPECT_EQ(made, 1);
}

TEST_F(Preparing, ATuningCountsWhatCannotBePreparedAsThatConfigsFailure) {
  refused_unroll = 4;
  const auto in = context(Policy::kTune);
  EXPECT_EQ(doubled(*in, request), expected);
  EXPECT_EQ(made, 2);  // unroll = 1 and 2
  const Choice choice = in->select<ToyOp>({.rows = 3}, request);
  EXPECT_NE(choice.kernel->params(choice.config).at(0).value, "4");
}

TEST_F(Preparing, AStoredChoiceThatCannotBePreparedAnyMoreIsPassedOver) {
  {
    const auto in = context(Policy::kTune);
    in->select<ToyOp>({.rows = 3}, request);
    // A row for a config that the default is not, whatever was fastest.
    ConfigRow row =
        ConfigDatabase(folder.file("user.db"), ConfigDatabase::Mode::kReadOnly).read().rows.at(0);
    row.config = "unroll=2";
    ConfigDatabase(folder.file("user.db"), ConfigDatabase::Mode::kReadWrite).put(row);
  }
  const auto before = context(Policy::kDb);
  EXPECT_EQ(text_of(before->select<ToyOp>({.rows = 3}, request)), "unroll=2");
  refused_unroll = 2;
  const auto in = context(Policy::kDb);
  EXPECT_EQ(doubled(*in, request), expected);
  EXPECT_EQ(text_of(in->select<ToyOp>({.rows = 3}, request)), "unroll=1");
  refused_unroll = 1;
  EXPECT_THROW(doubled(*context(Policy::kHeuristic), request), std::runtime_error);
}

}  // namespace
}  // namespace attune::test
