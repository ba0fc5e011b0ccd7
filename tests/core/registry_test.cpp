#include <gtest/gtest.h>

#include <attune/core/function_kernel.hpp>
#include <attune/core/registry.hpp>

#include "support/toy_op.hpp"

namespace attune {
namespace {

using test::ToyKernel;
using test::ToyOp;

template <class F>
std::string message_of(F&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Registry toy_registry() {
  Registry registry;
  registry.add_op<ToyOp>();
  registry.add(std::make_unique<ToyKernel>("reference.toy"),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<ToyKernel>("fast.toy"),
               {.platform = "fast", .backend = "any", .priority = 10});
  registry.add(std::make_unique<ToyKernel>("fast.toy.second"),
               {.platform = "fast", .backend = "cpu", .priority = 10});
  return registry;
}

std::vector<std::string> names(const std::vector<const RegisteredKernel*>& entries) {
  std::vector<std::string> result;
  for (const RegisteredKernel* entry : entries) result.emplace_back(entry->kernel->name());
  return result;
}

TEST(Registry, ListsByPriorityThenInTheOrderOfRegistration) {
  const Registry registry = toy_registry();
  EXPECT_EQ(names(registry.kernels("toy")),
            (std::vector<std::string>{"fast.toy", "fast.toy.second", "reference.toy"}));
}

TEST(Registry, FiltersByPlatformAndBackend) {
  const Registry registry = toy_registry();
  EXPECT_EQ(names(registry.kernels("toy", "reference", "cpu")),
            (std::vector<std::string>{"reference.toy"}));
  EXPECT_EQ(names(registry.kernels("toy", "auto", "gpu")), (std::vector<std::string>{"fast.toy"}));
}

TEST(Registry, NamesAreNotCaseSensitive) {
  const Registry registry = toy_registry();
  EXPECT_EQ(registry.op("TOY").name, "toy");
  EXPECT_EQ(names(registry.kernels("toy", "FAST", "cpu")).size(), 2U);
}

TEST(Registry, RefusesDuplicates) {
  Registry registry = toy_registry();
  EXPECT_EQ(message_of([&] { registry.add_op<ToyOp>(); }), "op 'toy' is registered twice");
  EXPECT_EQ(message_of([&] {
              registry.add(std::make_unique<ToyKernel>("fast.toy"), {.platform = "other"});
            }),
            "kernel 'fast.toy' is registered twice");
}

TEST(Registry, RefusesAKernelOfAnUnknownOpAndReservedWords) {
  Registry empty;
  EXPECT_EQ(message_of([&] { empty.add(std::make_unique<ToyKernel>("x"), {.platform = "fast"}); }),
            "kernel 'x': op 'toy' is not registered");
  Registry registry = toy_registry();
  for (const char* platform : {"", "auto", "any"}) {
    EXPECT_NE(message_of([&] {
                registry.add(std::make_unique<ToyKernel>("x"), {.platform = platform});
              }).find("reserved"),
              std::string::npos);
  }
}

struct RepeatedConfig {
  using Op = ToyOp;
  int rows = 1;
  friend constexpr bool operator==(const RepeatedConfig&, const RepeatedConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("rows", &RepeatedConfig::rows, {1, 2, 1})};
  }
};

struct NamedKernelConfig {
  using Op = ToyOp;
  int rows = 1;
  friend constexpr bool operator==(const NamedKernelConfig&, const NamedKernelConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("kernel", &NamedKernelConfig::rows, {1, 2})};
  }
};

enum class Path { kShort, kLong };
std::string_view to_string(Path path) { return path == Path::kShort ? "short" : "long, staged"; }
struct CommaConfig {
  using Op = ToyOp;
  Path path = Path::kShort;
  friend constexpr bool operator==(const CommaConfig&, const CommaConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("path", &CommaConfig::path, {Path::kShort, Path::kLong})};
  }
};

template <class Config>
std::string refusal_of() {
  Registry registry = toy_registry();
  return message_of([&] {
    registry.add(make_kernel<Config>("mine", 1, [](const auto&, const auto&) {}),
                 {.platform = "mine"});
  });
}

TEST(Registry, RefusesAxesThatNoTextOfAConfigCanSay) {
  EXPECT_EQ(refusal_of<RepeatedConfig>(), "kernel 'mine': axis 'rows': value 1 stands twice");
  EXPECT_EQ(refusal_of<NamedKernelConfig>(),
            "kernel 'mine': axis 'kernel': expected another name, without '=', ',' and blanks");
  EXPECT_EQ(refusal_of<CommaConfig>(),
            "kernel 'mine': axis 'path': value 'long, staged': expected no '=', ',' or blank");
}

TEST(Registry, UnknownNamesListWhatThereIs) {
  const Registry registry = toy_registry();
  EXPECT_EQ(message_of([&] { (void)registry.op("tay"); }),
            "no op 'tay'; did you mean 'toy'?; registered: toy");
  EXPECT_EQ(message_of([&] { (void)registry.kernels("toy", "cuda", "gpu"); }),
            "no platform 'cuda'; registered: fast, reference");
  EXPECT_EQ(message_of([&] {
              (void)registry.device({"gpu", 0});
            }),
            "no device 'gpu:0'; present: cpu:0");
}

TEST(Registry, AnAliasHasTheKernelsOfItsTarget) {
  Registry registry = toy_registry();
  registry.add_alias<test::ToyAlias>();
  EXPECT_EQ(registry.op("toy_alias").kernel_op, "toy");
  EXPECT_EQ(registry.kernels("toy_alias").size(), 3U);
  EXPECT_EQ(registry.op("toy_alias").parse({{"rows", "4"}}).op(), "toy");
}

TEST(Registry, HoldsDevicesBesideTheHost) {
  Registry registry;
  registry.add(std::make_unique<test::ToyDevice>());
  EXPECT_EQ(registry.devices().size(), 2U);
  EXPECT_EQ(registry.device({"toy", 0}).info().name, "toy device");
  EXPECT_THROW(registry.add(std::make_unique<test::ToyDevice>()), InvalidArgument);
  EXPECT_EQ(registry.backends(), (std::vector<std::string>{"cpu", "toy"}));
}

TEST(Registry, AskedOfABackendTellsWhatItsDescriptorSays) {
  Registry registry = toy_registry();
  registry.add(Backend{
      .name = "npu",
      .register_kernels =
          [](Registry& r) {
            r.add(std::make_unique<ToyKernel>("npu.toy"), {.platform = "npu", .backend = "npu"});
          },
      .why_no_devices = [] { return std::string("no NPU driver"); },
      .describe_device_class = [](std::string_view text) -> std::optional<DeviceInfo> {
        DeviceInfo info;
        info.name = text;
        return info;
      },
      .build = "NPU code"});
  EXPECT_NE(registry.find_kernel("npu.toy"), nullptr);
  EXPECT_EQ(registry.backends(), (std::vector<std::string>{"cpu", "npu"}));
  EXPECT_EQ(registry.why_no_devices("npu"), "no NPU driver");
  EXPECT_EQ(registry.why_no_devices("cpu"), "");
  EXPECT_EQ(registry.builds(), (std::vector<std::string>{"NPU code"}));
  EXPECT_EQ(registry.describe_device_class("npu:1").value_or(DeviceInfo{}).name, "npu:1");
  EXPECT_FALSE(registry.describe_device_class("gpu:sm_90:132sm:l2=50M:mem=140G").has_value());
}

TEST(Registry, RefusesABackendTwiceAndReservedNames) {
  Registry registry;
  registry.add(Backend{.name = "npu"});
  EXPECT_EQ(message_of([&] { registry.add(Backend{.name = "npu"}); }),
            "backend 'npu' is registered twice");
  for (const char* name : {"", "any", "auto"})
    EXPECT_THROW(registry.add(Backend{.name = name}), InvalidArgument) << name;
}

TEST(Registry, RefusesReservedBackendsAndTakesAnyOther) {
  Registry registry = toy_registry();
  for (const char* backend : {"", "auto"}) {
    EXPECT_EQ(message_of([&] {
                registry.add(std::make_unique<ToyKernel>("x"),
                             {.platform = "fast", .backend = backend});
              }),
              str("kernel 'x': backend '", backend, "' is a reserved word"));
  }
  registry.add(std::make_unique<ToyKernel>("x"), {.platform = "fast", .backend = "npu"});
  EXPECT_NE(registry.find_kernel("x"), nullptr);
}

TEST(Registry, RefusesAnOpWhoseIdIsAnothersButNotAnAlias) {
  Registry registry = toy_registry();
  OpInfo twin = op_info<ToyOp>();
  twin.name = "twin";
  twin.kernel_op = "twin";
  EXPECT_EQ(message_of([&] { registry.add(twin); }),
            "op 'twin' has the same id as 'toy': rename it");
  twin.kernel_op = "toy";
  registry.add(twin);
  twin.name = "other";
  twin.kernel_op = "other";
  twin.id = 1;
  registry.add(twin);
  EXPECT_EQ(registry.ops().size(), 3U);
}

TEST(Registry, FindsNothingByAnUnknownName) {
  const Registry registry = toy_registry();
  EXPECT_EQ(registry.find_op("to"), nullptr);
  EXPECT_EQ(registry.find_op("toys"), nullptr);
  EXPECT_EQ(registry.find_kernel("fast"), nullptr);
  EXPECT_EQ(registry.find_device({"cpu", 1}), nullptr);
  EXPECT_NE(registry.find_device({"cpu", 0}), nullptr);
  EXPECT_TRUE(registry.kernels("tay").empty());
  EXPECT_EQ(registry.kernels("toy", "auto", "cpu").size(), 3U);
  EXPECT_EQ(registry.kernels("toy", "fast", "gpu").size(), 1U);
  EXPECT_EQ(registry.platforms(), (std::vector<std::string>{"fast", "reference"}));
}

TEST(Registry, OfNothingSaysNone) {
  const Registry empty;
  EXPECT_EQ(message_of([&] { (void)empty.op("toy"); }), "no op 'toy'; registered: none");
}

}  // namespace
}  // namespace attune
