// Tensors in memory that is not the host's: whose it is, and what is copied of it.
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/tensor.hpp>

namespace attune {
namespace {

/// Memory of its own that happens to be the host's; it counts what is copied from it.
class ElsewhereDevice final : public Device {
 public:
  ElsewhereDevice() { info_.id = {"elsewhere", 0}; }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void*) const override {
    ++blocks;
    return std::malloc(bytes);
  }
  void deallocate(void* pointer, void*) const noexcept override {
    --blocks;
    std::free(pointer);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void*) const override {
    copied_from = from;
    copied_bytes = bytes;
    std::memcpy(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void*) const override {
    std::memset(to, std::to_integer<int>(value), bytes);
  }
  void synchronize(void*) const override {}
  double time_us(FunctionRef<void(void*, int)>, int) const override { return 1; }

  mutable const void* copied_from = nullptr;
  mutable std::size_t copied_bytes = 0;
  mutable int blocks = 0;

 private:
  DeviceInfo info_;
};

TEST(ToHost, OfAnotherDeviceCopiesWhatTheViewReachesAndNoMore) {
  const ElsewhereDevice device;
  std::vector<std::int32_t> memory(40);
  std::iota(memory.begin(), memory.end(), 0);
  // Backwards, with gaps: elements 30, 27, 24 and, a row further, 18, 15, 12.
  const ConstTensorView view(&memory[30], DType::kI32, {2, 3, 1}, {-12, -3, 99}, {"elsewhere", 0});
  EXPECT_EQ(to_doubles(to_host(view, device)), (std::vector<double>{30, 27, 24, 18, 15, 12}));
  EXPECT_EQ(device.copied_from, &memory[12]);
  EXPECT_EQ(device.copied_bytes, 19 * sizeof(std::int32_t));
  const ConstTensorView mixed(&memory[10], DType::kI32, {2, 3}, {-10, 2}, {"elsewhere", 0});
  EXPECT_EQ(to_doubles(to_host(mixed, device)), (std::vector<double>{10, 12, 14, 0, 2, 4}));
  EXPECT_EQ(device.copied_from, &memory[0]);
  EXPECT_EQ(device.copied_bytes, 15 * sizeof(std::int32_t));
  const ConstTensorView of_rank_5(memory.data(), DType::kI32, {1, 1, 1, 2, 3}, {9, 9, 9, 4, 1},
                                  {"elsewhere", 0});
  EXPECT_EQ(to_doubles(to_host(of_rank_5, device)), (std::vector<double>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(device.copied_bytes, 7 * sizeof(std::int32_t));
}

TEST(ToHost, OfAnEmptyViewCopiesNothing) {
  const ElsewhereDevice device;
  const ConstTensorView none(nullptr, DType::kF32, {2, 0}, DeviceId{"elsewhere", 0});
  EXPECT_EQ(to_host(none, device).bytes(), 0U);
  EXPECT_EQ(device.copied_from, nullptr);
}

TEST(Tensor, GivesItsMemoryBackOnce) {
  const ElsewhereDevice device;
  {
    Tensor first(DType::kF32, {4}, device);
    Tensor second(DType::kF32, {5}, device);
    EXPECT_EQ(device.blocks, 2);
    first = std::move(second);
    EXPECT_EQ(device.blocks, 1);
    EXPECT_EQ(first.shape(), (Extents{5}));
    EXPECT_EQ(second.bytes(), 0U);
    Tensor& same = first;
    first = std::move(same);
    EXPECT_EQ(first.bytes(), 20U);
    const Tensor third = std::move(first);
    EXPECT_EQ(device.blocks, 1);
    EXPECT_THROW((void)third.values<float>(), InvalidArgument) << "it is not in host memory";
  }
  EXPECT_EQ(device.blocks, 0);
}

TEST(Tensor, MayBeEmptyOnAnyDevice) {
  const ElsewhereDevice device;
  const Tensor empty(DType::kF32, {3, 0}, device);
  EXPECT_EQ(device.blocks, 0);
  EXPECT_TRUE(empty.values<float>().empty());
}

TEST(Tensor, OfTooManyBytesIsRefused) {
  EXPECT_THROW(Tensor(DType::kF32, {std::int64_t{1} << 62}), InvalidArgument);
}

}  // namespace
}  // namespace attune
