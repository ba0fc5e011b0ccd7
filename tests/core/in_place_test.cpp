// Digests and copies of a host's arrays, and of a device that has none of its own.
#include <cstring>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace attune::test
