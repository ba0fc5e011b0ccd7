#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/tensor.hpp>

namespace attune {
namespace {

TEST(TensorView, OfAPointerIsDenseAndTyped) {
  float data[24] = {};
  const ConstTensorView view(data, {2, 3, 4});
  EXPECT_EQ(view.dtype, DType::kF32);
  EXPECT_EQ(view.strides, (Extents{12, 4, 1}));
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.device, DeviceId{});
}

TEST(TensorView, PermuteReordersShapeAndStrides) {
  float data[24] = {};
  const TensorView heads_first(data, {2, 3, 4});
  const TensorView view = heads_first.permute({1, 0, 2});
  EXPECT_EQ(view.shape, (Extents{3, 2, 4}));
  EXPECT_EQ(view.strides, (Extents{4, 12, 1}));
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_THROW(heads_first.permute({0, 0, 2}), InvalidArgument);
  EXPECT_THROW(heads_first.permute({0, 1}), InvalidArgument);
  EXPECT_THROW(heads_first.permute({0, 1, 3}), InvalidArgument);
}

TEST(TensorView, SliceMovesTheOrigin) {
  std::vector<float> data(24);
  std::iota(data.begin(), data.end(), 0.0F);
  const ConstTensorView view = ConstTensorView(data.data(), {2, 3, 4}).slice(2, 1, 3);
  EXPECT_EQ(view.shape, (Extents{2, 3, 2}));
  EXPECT_EQ(element_as_double(view, 0), 1);
  EXPECT_EQ(to_doubles(view), (std::vector<double>{1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22}));
  EXPECT_THROW(view.slice(0, 1, 3), InvalidArgument);
  EXPECT_THROW(view.slice(3, 0, 0), InvalidArgument);
}

TEST(TensorView, UnsqueezeAddsADimensionOfOne) {
  float data[6] = {};
  const TensorView view = TensorView(data, {2, 3}).unsqueeze(0);
  EXPECT_EQ(view.shape, (Extents{1, 2, 3}));
  EXPECT_TRUE(view.is_contiguous());
}

TEST(ElementCount, RefusesNegativeExtentsAndOverflow) {
  EXPECT_EQ(element_count({3, 0, 5}), 0);
  EXPECT_EQ(element_count({}), 1);
  EXPECT_THROW(element_count({2, -1}), InvalidArgument);
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW(element_count({big, big}), InvalidArgument);
  EXPECT_EQ(element_count({big, big, 0}), 0);
}

TEST(Extents, RefuseMoreThanFive) { EXPECT_THROW((Extents{1, 2, 3, 4, 5, 6}), InvalidArgument); }

TEST(Tensor, OwnsAlignedMemoryAndMoves) {
  Tensor tensor = Tensor::of(std::vector<float>{1, 2, 3}, {3});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0U);
  Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.values<float>()[2], 3);
  EXPECT_THROW(moved.values<bf16>(), InvalidArgument);
  EXPECT_THROW(Tensor::of(std::vector<float>{1, 2}, {3}), InvalidArgument);
  moved = Tensor(DType::kI64, {0, 4});
  EXPECT_EQ(moved.bytes(), 0U);
  EXPECT_EQ(moved.view().data, nullptr);
}

TEST(ToHost, GathersStridedElements) {
  const Tensor source = Tensor::of(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor copy = to_host(source.view().permute({1, 0}), cpu_device());
  EXPECT_EQ(std::vector<std::int32_t>(copy.values<std::int32_t>().begin(),
                                      copy.values<std::int32_t>().end()),
            (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
}

TEST(RelativeRmsError, IsInfiniteForANaNThatIsNotExpected) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(relative_rms_error({nan, 1}, {0, 1}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(relative_rms_error({nan, 1}, {nan, 1}), 0);
  EXPECT_DOUBLE_EQ(relative_rms_error({3, 4}, {0, 0}), std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(relative_rms_error({3, 4.5}, {3, 4}), 0.1);
}

TEST(CpuDevice, DescribesThisMachine) {
  const DeviceInfo& info = cpu_device().info();
  EXPECT_GE(info.cores, 1);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.device_class.find(' '), std::string::npos);
  EXPECT_EQ(read_cpu_info().device_class, info.device_class)
      << "a class must not change between readings";
}

/// The line "VmFlags: ..." of the mapping that holds `address`; "" where the system has no such
/// list.
std::string mapping_flags(const void* address) {
  std::ifstream mappings("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> first >> dash >> end && dash == '-') {
      const auto place = reinterpret_cast<std::uintptr_t>(address);
      inside = first <= place && place < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + ' ';
    }
  }
  return "";
}

constexpr std::size_t kHugePage = std::size_t{2} << 20;

bool is_advised_huge(const void* address) {
  return mapping_flags(address).find(" hg ") != std::string::npos;
}

/// Whether a mapping shows that huge pages were asked for; not where a kernel is emulated.
bool shows_advice() {
#if defined(MADV_HUGEPAGE)
  void* const memory = std::aligned_alloc(kHugePage, 2 * kHugePage);
  const bool shown = madvise(memory, 2 * kHugePage, MADV_HUGEPAGE) == 0 && is_advised_huge(memory);
  std::free(memory);
  return shown;
#else
  return false;
#endif
}

TEST(CpuDevice, AsksForHugePagesWhereMemoryFillsThem) {
  const bool shown = shows_advice();
  for (const std::size_t bytes : {kHugePage, 3 * kHugePage + 4}) {
    const Tensor tensor(DType::kF32, {static_cast<std::int64_t>(bytes / sizeof(float))});
    const void* const data = tensor.view().data;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kHugePage, 0U) << bytes;
    EXPECT_EQ(is_advised_huge(data), shown) << bytes;
  }
}

TEST(CpuDevice, TimesEachRepeat) {
  int calls = 0;
  const double us = cpu_device().time_us([&](void*, int repeat) { EXPECT_EQ(repeat, calls++); }, 7);
  EXPECT_EQ(calls, 7);
  EXPECT_GE(us, 0);
}

TEST(TensorView, TakesOnlyDimensionsThatItHas) {
  std::vector<float> data(24);
  const TensorView view(data.data(), {2, 3, 4});
  EXPECT_THROW(view.permute({-1, 0, 1}), InvalidArgument);
  EXPECT_THROW(view.permute({0, 1, 2, 2}), InvalidArgument);
  EXPECT_THROW(view.permute({}), InvalidArgument);
  EXPECT_THROW(view.slice(-1, 0, 0), InvalidArgument);
  EXPECT_THROW(view.slice(0, -1, 1), InvalidArgument);
  EXPECT_THROW(view.slice(0, 2, 1), InvalidArgument);
  EXPECT_THROW(view.slice(2, 0, 5), InvalidArgument);
  EXPECT_EQ(view.slice(2, 0, 4).shape, view.shape) << "all of it";
  EXPECT_TRUE(view.slice(1, 3, 3).empty());
  EXPECT_EQ(view.slice(0, 1, 2).data, data.data() + 12);
  EXPECT_THROW(view.unsqueeze(-1), InvalidArgument);
  EXPECT_THROW(view.unsqueeze(4), InvalidArgument);
}

TEST(TensorView, UnsqueezeKeepsADenseViewDenseInAnyPlace) {
  std::vector<float> data(24);
  const TensorView view(data.data(), {2, 3, 4});
  EXPECT_EQ(view.unsqueeze(0).strides, (Extents{24, 12, 4, 1}));
  EXPECT_EQ(view.unsqueeze(2).strides, (Extents{12, 4, 4, 1}));
  EXPECT_EQ(view.unsqueeze(3).strides, (Extents{12, 4, 1, 1}));
  EXPECT_EQ(view.unsqueeze(3).shape, (Extents{2, 3, 4, 1}));
  EXPECT_THROW(view.unsqueeze(0).unsqueeze(0).unsqueeze(0), InvalidArgument);
}

TEST(TensorView, IsContiguousWhateverTheStrideOfOneElement) {
  std::vector<float> data(24);
  EXPECT_TRUE(TensorView(data.data(), DType::kF32, {2, 1, 4}, {4, 99, 1}).is_contiguous());
  EXPECT_FALSE(TensorView(data.data(), DType::kF32, {2, 1, 4}, {5, 4, 1}).is_contiguous());
  EXPECT_FALSE(TensorView(data.data(), DType::kF32, {2, 4}, {4, 0}).is_contiguous());
  EXPECT_TRUE(TensorView(data.data(), DType::kF32, {0, 4}, {7, 7}).is_contiguous());
}

TEST(Extents, MayBeAsManyAsFiveAndAreWrittenInBrackets) {
  EXPECT_EQ((Extents{1, 2, 3, 4, 5}).rank(), 5);
  std::ostringstream out;
  out << Extents{2, 64} << Extents{} << DeviceId{"gpu", 3};
  EXPECT_EQ(out.str(), "[2, 64][]gpu:3");
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Extents{3, 3, 1}));
}

TEST(ElementAsDouble, FollowsTheStridesOfEveryType) {
  const std::vector<std::int64_t> wide = {5, -6, 7, -8};
  const ConstTensorView view(wide.data(), {2, 2});
  EXPECT_EQ(element_as_double(view.permute({1, 0}), 1), 7);
  const std::vector<f16> half = {f16(0.5F), f16(-2.0F)};
  EXPECT_EQ(to_doubles(ConstTensorView(half.data(), {2})), (std::vector<double>{0.5, -2}));
  const std::vector<bf16> brain = {bf16(0.25F), bf16(-4.0F)};
  EXPECT_EQ(to_doubles(ConstTensorView(brain.data(), {2})), (std::vector<double>{0.25, -4}));
}

TEST(ToDoubles, FollowsDenseRunsGapsAndStridesOfZero) {
  std::vector<float> data(24);
  std::iota(data.begin(), data.end(), 0.0F);
  const auto read = [&](const Extents& shape, const Extents& strides) {
    const ConstTensorView view(data.data(), DType::kF32, shape, strides);
    EXPECT_EQ(to_doubles(to_host(view, cpu_device()).view()), to_doubles(view));
    return to_doubles(view);
  };
  EXPECT_EQ(read({2, 2, 2}, {4, 2, 1}), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(read({2, 2, 2}, {12, 2, 1}), (std::vector<double>{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(read({2, 1, 2}, {4, 99, 1}), (std::vector<double>{0, 1, 4, 5}));
  EXPECT_EQ(read({2, 3}, {0, 1}), (std::vector<double>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(read({3, 2}, {1, 0}), (std::vector<double>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(read({}, {}), (std::vector<double>{0}));
}

TEST(RelativeRmsError, ComparesInfinitiesByTheirSign) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(relative_rms_error({infinity, 3}, {infinity, 3}), 0);
  EXPECT_EQ(relative_rms_error({-infinity, 3}, {infinity, 3}), infinity);
  EXPECT_EQ(relative_rms_error({1, 3}, {infinity, 3}), infinity);
  EXPECT_EQ(relative_rms_error({infinity, 3}, {1, 3}), infinity);
  EXPECT_EQ(relative_rms_error({1, 3}, {nan, 3}), infinity);
  EXPECT_EQ(relative_rms_error({}, {}), 0);
}

}  // namespace
}  // namespace attune
