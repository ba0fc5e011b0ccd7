// From run-time values to compiled instances: the right one, or an exception. Needs no GPU.
#include "cuda/runtime/dispatch.hpp"

#include <array>
#include <string>
#include <tuple>
#include <type_traits>

#include <gtest/gtest.h>

namespace attune::test {
namespace {

constexpr int kWidths[] = {64, 128, 256};

struct TileConfig {
  int rows = 8;
  int stages = 2;
  friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{axis("rows", &TileConfig::rows, {8, 16, 32}),
                      launch_axis("stages", &TileConfig::stages, {2, 3})};
  }
  static constexpr bool compiles(const TileConfig& config) { return config.rows != 16; }
};

static_assert(cuda::kAxisValues<&TileConfig::stages> == std::array{2, 3});
static_assert(cuda::kAxisValues<&TileConfig::rows> == std::array{8, 16, 32});

TEST(CudaDispatch, AValueReachesItsOwnInstance) {
  const auto instance_of = [](int width) {
    return cuda::with_value_of<kWidths>(width, []<int kWidth>() { return kWidth; });
  };
  for (const int width : kWidths) EXPECT_EQ(instance_of(width), width);
  EXPECT_THROW(instance_of(192), Unsupported);
  EXPECT_THROW(instance_of(0), Unsupported);
}

TEST(CudaDispatch, AnElementTypeReachesItsOwnInstance) {
  const auto is_half = [](DType dtype) {
    return cuda::with_element<__half, __nv_bfloat16>(
        dtype, []<class T>() { return std::is_same_v<T, __half>; });
  };
  EXPECT_TRUE(is_half(DType::kF16));
  EXPECT_FALSE(is_half(DType::kBF16));
  EXPECT_THROW(is_half(DType::kF32), Unsupported);
}

TEST(CudaDispatch, AConfigReachesItsOwnInstance) {
  const auto rows_of_instance = [](const TileConfig& config) {
    int rows = 0;
    cuda::with_instance(config, [&]<class Instance>() { rows = Instance::kValue.rows; });
    return rows;
  };
  EXPECT_EQ(rows_of_instance({.rows = 8, .stages = 3}), 8);
  EXPECT_EQ(rows_of_instance({.rows = 32, .stages = 2}), 32);
  EXPECT_THROW(rows_of_instance({.rows = 16}), Unsupported);
  try {
    rows_of_instance({.rows = 64});
    FAIL() << "an instance that does not exist was run";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("rows=64"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace attune::test
