// Digests and copies of a host's arrays, and of a device that has none of its own; what cases do by
// them.
#include <algorithm>
#include <cstring>
#include <new>

#include <gtest/gtest.h>

#include <attune/core/case_tensors.hpp>

#include "support/in_place_claims.hpp"
#include "tuner/fake_device.hpp"

namespace attune::test {
namespace {

TEST(Digest, TellsArraysApartAndFindsWhatIsNotFinite) { expect_digests(cpu_device()); }

TEST(CopyWithin, MovesWhatItIsTold) {
  World world;
  expect_copies(cpu_device());
  expect_copies(FakeDevice(world));
}

TEST(Digest, OfADeviceThatHasNoneIsOfAHostCopy) {
  World world;
  const FakeDevice device(world);
  expect_digests(device);
  const std::vector<float> values = counted<float>(1000);
  EXPECT_EQ(digest_on(device, values), digest_on(cpu_device(), values));
}

/// One that says of each array what it was told.
class KnowingDevice final : public FakeDevice, public InPlaceDevice {
 public:
  using FakeDevice::FakeDevice;
  std::vector<Digest> digests(std::span<const ConstTensorView> views) const override {
    return std::vector<Digest>(views.size(), {.sum = 3, .not_finite = 7});
  }
  void copy(void* to, const void*, std::size_t bytes, void*) const override {
    std::memset(to, 5, bytes);
  }
};

TEST(InPlace, IsTheDevicesOwnWhereItIsOne) {
  World world;
  const KnowingDevice device(world);
  EXPECT_EQ(digest_on(device, counted<float>(10)), (Digest{.sum = 3, .not_finite = 7}));
  char to = 0;
  copy_within(device, &to, &to, 1, nullptr);
  EXPECT_EQ(to, 5);
}

/// With room for so many blocks.
class SmallDevice final : public FakeDevice {
 public:
  SmallDevice(World& world, int blocks) : FakeDevice(world), blocks_(blocks) {}
  void* allocate(std::size_t bytes, void* stream) const override {
    if (blocks_ == 0) throw std::bad_alloc();
    --blocks_;
    return FakeDevice::allocate(bytes, stream);
  }

 private:
  mutable int blocks_;
};

/// In memory that the host can write to, as the fake device's.
TEST(CaseTensors, ResetWhatIsUpdatedFromTheDeviceOrWithoutRoomThereFromTheHost) {
  const std::vector<float> values{1, 2, 3, 4};
  for (const int room : {1, 2}) {
    World world;
    const SmallDevice device(world, room);
    CaseTensors tensors(device);
    const TensorView* const state = tensors.updated("state", Tensor::of(values, {4}));
    EXPECT_THROW(device.allocate(1, nullptr), std::bad_alloc) << "of " << room << " blocks";
    auto* const there = static_cast<float*>(state->data);
    for (int times = 0; times < 2; ++times) {
      std::fill_n(there, values.size(), -1.0F);
      tensors.reset(std::byte{0xFF});
      EXPECT_TRUE(std::equal(values.begin(), values.end(), there));
    }
  }
}

}  // namespace
}  // namespace attune::test
