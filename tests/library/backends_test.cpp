// What attune's backends say of devices that are not here.
#include <gtest/gtest.h>

#include <attune/backends/all.hpp>
#include <attune/core/device.hpp>
#include <attune/ops/register.hpp>

namespace attune {
namespace {

std::optional<DeviceInfo> describe_device_class(std::string_view device_class) {
  static const Registry& registry = *[] {
    auto* made = new Registry;
    ops::register_ops(*made);
    register_backends(*made);
    return made;
  }();
  return registry.describe_device_class(device_class);
}

TEST(DeviceClass, DescribesThisMachineAsItIs) {
  const DeviceInfo& here = cpu_device().info();
  const std::optional<DeviceInfo> described = describe_device_class(here.device_class);
  ASSERT_TRUE(described.has_value()) << here.device_class;
  EXPECT_EQ(described->id, here.id);
  EXPECT_EQ(described->arch, here.arch);
  EXPECT_EQ(described->cores, here.cores);
  EXPECT_EQ(described->features, here.features);
  EXPECT_EQ(described->l3_bytes, here.l3_bytes);
}

TEST(DeviceClass, DescribesACpuOfALevelWithThoseBelowIt) {
  const auto described = describe_device_class("cpu:x86-64:amx_bf16:16c:l1=48K:l2=2M:l3=300M");
  ASSERT_TRUE(described.has_value());
  for (const char* feature : {"avx2", "avx512vl", "avx512_bf16", "amx_bf16"}) {
    EXPECT_TRUE(described->has(feature)) << feature;
  }
  const auto before = describe_device_class("cpu:x86-64:avx512_bf16:16c:l1=48K:l2=2M:l3=300M");
  ASSERT_TRUE(before.has_value());
  EXPECT_TRUE(before->has("avx512_bf16"));
  EXPECT_FALSE(before->has("amx_bf16"));
}

TEST(DeviceClass, DescribesAGpu) {
  const auto h200 = describe_device_class("gpu:sm_90:132sm:l2=50M:mem=140G");
  ASSERT_TRUE(h200.has_value());
  EXPECT_EQ(h200->id.backend.view(), "gpu");
  EXPECT_EQ(h200->cores, 132);
  EXPECT_EQ(h200->l1_bytes, 232448);
  EXPECT_EQ(h200->l2_bytes, std::int64_t{50} << 20);
  EXPECT_TRUE(h200->has("sm_90a"));
  const auto a100 = describe_device_class("gpu:sm_80:108sm:l2=40M:mem=79G");
  ASSERT_TRUE(a100.has_value());
  EXPECT_EQ(a100->l1_bytes, 166912);
  EXPECT_FALSE(a100->has("sm_90"));
}

TEST(DeviceClass, KnowsNoOthers) {
  for (const char* text :
       {"", "fake:1", "cpu", "cpu:x86-64:avx2", "cpu:x86-64:avx2:0c:l1=32K:l2=1M:l3=32M",
        "cpu:x86-64:avx2:8c:l1=32K:l2=1M:l3=32", "gpu:sm_70:80sm:l2=6M:mem=16G",
        "gpu:sm_90:132sm:l2=50M", "gpu:sm_90:132sm:l2=50M:mem=99999999999999999999G",
        "gpu:sm_90:-1sm:l2=50M:mem=140G"}) {
    EXPECT_FALSE(describe_device_class(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace attune
