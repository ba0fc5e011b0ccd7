// A call with memory of its caller's: it allocates nothing, and what it chooses fits.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include <attune/attune.hpp>
#include <attune/ops/register.hpp>

#include "ops/attention_calls.hpp"
#include "ops/decode_calls.hpp"
#include "support/allocation_count.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPart = 1024;  // bytes

/// Memory that is the host's, on "gpu:0", counted.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(int* allocations) : allocations_(allocations) {
    info_.id = {"gpu", 0};
    info_.device_class = "gpu:counting";
  }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    ++*allocations_;
    return cpu_device().allocate(bytes, stream);
  }
  void deallocate(void* pointer, void* stream) const noexcept override {
    cpu_device().deallocate(pointer, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    cpu_device().copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    cpu_device().copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    cpu_device().fill(to, value, bytes, stream);
  }
  void synchronize(void*) const override {}
  double time_us(FunctionRef<void(void*, int)>, int) const override { return 1; }

 private:
  DeviceInfo info_;
  int* allocations_;
};

template <class O>
struct PartsConfig {
  using Op = O;
  int parts = 4;  // of the workspace
  friend constexpr bool operator==(const PartsConfig&, const PartsConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("parts", &PartsConfig::parts, {1, 2, 4})};
  }
};

/// Fills its workspace, and computes nothing.
template <class Op>
class PartsKernel final : public Kernel<PartsConfig<Op>> {
 public:
  explicit PartsKernel(std::size_t* used) : used_(used) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gk", "gv", "gamma", "packed", "reverse", "h0", "ht", "slots"};
  }
  Support supports(const typename Op::Problem&, const DeviceInfo&) const override {
    return Support::yes();
  }
  PartsConfig<Op> heuristic_config(const typename Op::Problem&, const DeviceInfo&) const override {
    return {};
  }
  std::size_t workspace_bytes(const typename Op::Problem&,
                              const PartsConfig<Op>& config) const override {
    return static_cast<std::size_t>(config.parts) * kPart;
  }
  void run(const typename Op::Problem&, const typename Op::Args&, const PartsConfig<Op>&,
           const LaunchSite& site) const override {
    *used_ = site.workspace.size();
    std::ranges::fill(site.workspace, std::byte{0x5a});
  }

 private:
  std::size_t* used_;
  std::string name_ = str("parts.", Op::kName);
};

/// An allocator of the caller's.
class CountingAllocator final : public WorkspaceAllocator {
 public:
  void* allocate(std::size_t bytes, const DeviceId& device, void* stream) override {
    ++allocations;
    asked = bytes;
    on = device;
    of_stream = stream;
    return is_empty ? nullptr : memory.data() + behind;
  }
  void deallocate(void* pointer, std::size_t bytes, void*) noexcept override {
    ++deallocations;
    right_back = pointer == memory.data() + behind && bytes == asked;
  }

  alignas(64) std::array<std::byte, 8 * kPart> memory{};
  std::size_t behind = 0;
  bool is_empty = false;
  int allocations = 0, deallocations = 0;
  std::size_t asked = 0;
  DeviceId on;
  void* of_stream = nullptr;
  bool right_back = false;
};

class CallerMemoryTest : public testing::Test {
 protected:
  CallerMemoryTest() {
    ContextOptions options{.policy = Policy::kHeuristic, .database = ""};
    options.register_kernels = {ops::register_ops, [this](Registry& registry) {
                                  add<ops::RecurrentAttention>(registry);
                                  add<ops::RecurrentAttentionBackward>(registry);
                                  add<ops::RecurrentDecode>(registry);
                                  registry.add(std::make_unique<CountingDevice>(&allocations));
                                }};
    context = make_framework_context(options);
    decode.q.device = decode.k.device = decode.v.device = decode.state.device = decode.o.device =
        gpu;
    for (TensorView* view : {&forward.q, &forward.k, &forward.v, &forward.out.o})
      *view = on_gpu(*view);
    decode.options.call.context = forward.options.call.context = context.get();
    backward.options.call.context = context.get();
    move_to_gpu(backward);
  }
  template <class Op>
  void add(Registry& registry) {
    registry.add(std::make_unique<PartsKernel<Op>>(&used), {.platform = "parts", .backend = "gpu"});
  }
  static void move_to_gpu(BackwardCall& call) {
    for (TensorView* view : {&call.q, &call.k, &call.v, &call.out.dq, &call.out.dk, &call.out.dv}) {
      *view = on_gpu(*view);
    }
    const auto move = [](auto& view) {
      if (view) view->device = {"gpu", 0};
    };
    move(call.options.g);
    move(call.options.gk);
    move(call.options.gv);
    move(call.options.g_gamma);
    move(call.options.initial_state);
    call.gradients.d_o = on_gpu(call.memory.f32({kB, kT, kH, kV}));
    move(call.gradients.dfinal_state);
    move(call.out.dg);
    move(call.out.dgk);
    move(call.out.dgv);
    move(call.out.dg_gamma);
    move(call.out.dinitial_state);
  }
  ops::CallOptions& of(DecodeCall& call) { return call.options.call; }

  /// Memory for `bytes`, `behind` an aligned address.
  std::span<std::byte> workspace(std::size_t bytes, std::size_t behind = 0) {
    return std::span(memory).subspan(behind, bytes);
  }

  template <class Call>
  void expect_no_allocation(Call& call) {
    call.options.call.workspace = workspace(4 * kPart);
    call.run();  // the first one chooses
    for (const std::size_t bytes : {4 * kPart, 3 * kPart}) {
      call.options.call.workspace = workspace(bytes);
      call.run();  // for the first time with this limit
      std::ranges::fill(memory, std::byte{0});
      used = 0;
      allocations = 0;
      const std::size_t before = allocation_count();
      call.run();
      EXPECT_EQ(allocation_count() - before, 0U) << bytes;
      EXPECT_EQ(allocations, 0) << bytes;
      EXPECT_EQ(used, bytes == 3 * kPart ? 2 * kPart : bytes) << "what fits";
      EXPECT_EQ(memory[0], std::byte{0x5a});
      EXPECT_EQ(memory[used], std::byte{0}) << "no more than was asked for";
    }
  }
  template <class Run>
  std::string error_of(const Run& run) {
    try {
      run();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  const DeviceId gpu{"gpu", 0};
  int allocations = 0;
  std::size_t used = 0;
  alignas(64) std::array<std::byte, 8 * kPart> memory{};
  std::unique_ptr<Context> context;
  ForwardCall forward;
  BackwardCall backward;
  DecodeCall decode;
};

TEST_F(CallerMemoryTest, AForwardCallAllocatesNothing) { expect_no_allocation(forward); }
TEST_F(CallerMemoryTest, ABackwardCallAllocatesNothing) { expect_no_allocation(backward); }
TEST_F(CallerMemoryTest, ADecodeCallAllocatesNothing) { expect_no_allocation(decode); }

TEST_F(CallerMemoryTest, WithoutItTheDeviceAllocates) {
  decode.run();
  EXPECT_EQ(allocations, 1) << "or the tests above could not fail";
  EXPECT_EQ(used, 4 * kPart);
}

TEST_F(CallerMemoryTest, IsChecked) {
  of(decode).workspace = workspace(4 * kPart, 8);
  EXPECT_EQ(error_of([&] { decode.run(); }),
            "recurrent_decode: workspace begins 8 bytes behind a multiple of 64, expected one that "
            "is aligned to it");
  EXPECT_EQ(used, 0U) << "nothing was run";
  of(decode).workspace = workspace(4 * kPart);
  CountingAllocator allocator;
  of(decode).workspace_allocator = &allocator;
  EXPECT_EQ(error_of([&] { decode.run(); }),
            "recurrent_decode: workspace and workspace_allocator: expected one of them");
}

TEST_F(CallerMemoryTest, TooLittleForAnythingSaysWhatWouldDo) {
  for (const std::size_t bytes : {kPart - 1, std::size_t{0}}) {
    of(decode).workspace = workspace(bytes);
    try {
      decode.run();
      FAIL() << "nothing was thrown";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), HasSubstr("the least that would do is 1024 bytes"));
    }
  }
}

TEST_F(CallerMemoryTest, ALimitBoundsWhatTheDeviceAllocates) {
  of(decode).workspace_limit = 3 * kPart;
  decode.run();
  EXPECT_EQ(used, 2 * kPart);
  of(decode).workspace = workspace(8 * kPart);
  decode.run();
  EXPECT_EQ(used, 2 * kPart) << "the lesser of the two";
}

TEST_F(CallerMemoryTest, AnAllocatorIsAskedOnceAndGetsItBack) {
  CountingAllocator allocator;
  int stream = 0;
  of(decode).workspace_allocator = &allocator;
  of(decode).stream = &stream;
  decode.run();
  EXPECT_EQ(allocator.allocations, 1);
  EXPECT_EQ(allocator.deallocations, 1);
  EXPECT_EQ(allocator.asked, 4 * kPart);
  EXPECT_EQ(allocator.on, gpu);
  EXPECT_EQ(allocator.of_stream, &stream);
  EXPECT_TRUE(allocator.right_back);
  EXPECT_EQ(allocator.memory[0], std::byte{0x5a});
  EXPECT_EQ(allocations, 0);
}

TEST_F(CallerMemoryTest, WhatAnAllocatorGivesIsChecked) {
  CountingAllocator allocator;
  of(decode).workspace_allocator = &allocator;
  allocator.behind = 4;
  EXPECT_THAT(error_of([&] { decode.run(); }), HasSubstr("workspace begins 4 bytes behind"));
  EXPECT_EQ(allocator.deallocations, 1) << "it got it back";
  allocator.is_empty = true;
  EXPECT_THROW(decode.run(), std::bad_alloc);
  EXPECT_EQ(allocator.deallocations, 1);
}

TEST_F(CallerMemoryTest, APlanIsBoundByTheLimitAndTakesItsMemoryAtLaunch) {
  const auto plan_of = [&] {
    return ops::plan_recurrent_decode(decode.q, decode.k, decode.v, decode.state, decode.options);
  };
  of(decode).workspace_limit = 3 * kPart;
  EXPECT_EQ(plan_of().workspace_bytes(), 2 * kPart);
  of(decode).workspace = workspace(8 * kPart);
  EXPECT_THAT(error_of(plan_of),
              HasSubstr("recurrent_decode: workspace: a plan takes it with each launch"));
}

}  // namespace
}  // namespace attune::test
