// Digests of a host's arrays, and of a device that has none of its own.
#include <gtest/gtest.h>

#include "support/digest_claims.hpp"
#include "tuner/fake_device.hpp"

namespace attune::test {
namespace {

TEST(Digest, TellsArraysApartAndFindsWhatIsNotFinite) { expect_digests(cpu_device()); }

TEST(Digest, OfADeviceThatHasNoneIsOfAHostCopy) {
  World world;
  const FakeDevice device(world);
  expect_digests(device);
  const std::vector<float> values = counted<float>(1000);
  EXPECT_EQ(digest_on(device, values), digest_on(cpu_device(), values));
}

/// One that says of each array what it was told.
class KnowingDevice final : public FakeDevice, public DigestingDevice {
 public:
  using FakeDevice::FakeDevice;
  std::vector<Digest> digests(std::span<const ConstTensorView> views) const override {
    return std::vector<Digest>(views.size(), {.sum = 3, .not_finite = 7});
  }
};

TEST(Digest, IsTheDevicesOwnWhereItHasOne) {
  World world;
  const KnowingDevice device(world);
  EXPECT_EQ(digest_on(device, counted<float>(10)), (Digest{.sum = 3, .not_finite = 7}));
}

}  // namespace
}  // namespace attune::test
