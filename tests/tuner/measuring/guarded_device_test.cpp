// A device whose memory has guards: what is seen of a kernel that writes where it must not.
#include "measuring/guarded_device.hpp"

#include <limits>
#include <new>

#include <gtest/gtest.h>

#include "tuner/fake_device.hpp"

namespace attune::test {
namespace {

class GuardedDeviceTest : public testing::Test {
 protected:
  std::byte* allocate(std::size_t bytes) {
    auto* const block = static_cast<std::byte*>(device.allocate(bytes, nullptr));
    device.fill(block, std::byte{1}, bytes, nullptr);
    return block;
  }

  World world;
  FakeDevice fake{world};
  tuning::GuardedDevice device{fake};
};

TEST_F(GuardedDeviceTest, SeesBytesThatWereWrittenOnEitherSideOfABlock) {
  std::byte* const block = allocate(64);
  EXPECT_EQ(device.take_damage(), "") << "all of the block may be written";
  block[64] = block[66] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "2 bytes past the end of a block of 64");
  EXPECT_EQ(device.take_damage(), "") << "it is said once";
  block[-1] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "1 byte before a block of 64");
  block[-4096] = block[64 + 4095] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "1 byte before a block of 64");
  EXPECT_EQ(device.take_damage(), "");
  device.deallocate(block, nullptr);
  EXPECT_EQ(device.take_damage(), "");
}

TEST_F(GuardedDeviceTest, SeesDamageOfAnyBlock) {
  std::byte* const first = allocate(16);
  std::byte* const second = allocate(0);
  std::byte* const third = allocate(32);
  second[0] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "1 byte past the end of a block of 0");
  third[32] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "1 byte past the end of a block of 32");
  for (std::byte* const block : {first, second, third}) device.deallocate(block, nullptr);
}

TEST_F(GuardedDeviceTest, SeesWhatIsNoWholeWords) {
  std::byte* const odd = allocate(61);
  EXPECT_EQ(device.take_damage(), "");
  odd[61] = std::byte{0};
  EXPECT_EQ(device.take_damage(), "1 byte past the end of a block of 61");
  EXPECT_EQ(device.take_damage(), "");
  const auto before = device.sums_of_unwritten({});
  odd[60] = std::byte{0};
  EXPECT_NE(device.sums_of_unwritten({}), before);
  device.deallocate(odd, nullptr);
}

TEST_F(GuardedDeviceTest, SumsWhatNobodyMayWrite) {
  std::byte* const input = allocate(64);
  std::byte* const output = allocate(64);
  std::byte* const scratch = allocate(64);
  const auto before = device.sums_of_unwritten({output, scratch + 63});
  EXPECT_EQ(before.size(), 1U);
  output[0] = scratch[0] = std::byte{7};
  EXPECT_EQ(device.sums_of_unwritten({output, scratch + 63}), before);
  input[63] = std::byte{7};
  EXPECT_NE(device.sums_of_unwritten({output, scratch + 63}), before);
  EXPECT_EQ(device.sums_of_unwritten({output + 64, scratch - 1, nullptr}).size(), 3U)
      << "what lies beside a block is not of it";
  EXPECT_EQ(device.sums_of_unwritten({}).size(), 3U);
  for (std::byte* const block : {input, output, scratch}) device.deallocate(block, nullptr);
}

TEST_F(GuardedDeviceTest, HasNoMemoryForWhatItsGuardsDoNotFitTo) {
  EXPECT_THROW(device.allocate(std::numeric_limits<std::size_t>::max() - 100, nullptr),
               std::bad_alloc);
}

}  // namespace
}  // namespace attune::test
