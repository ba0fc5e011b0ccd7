// How a problem is made concrete: copies of its tensors, so that none is found in a cache.
#include "measuring/harness.hpp"

#include <gtest/gtest.h>

#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

/// The fake device with a cache.
class CachedDevice final : public Device {
 public:
  CachedDevice(const Device& device, std::int64_t l2_bytes)
      : device_(device), info_(device.info()) {
    info_.l2_bytes = l2_bytes;
  }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    return device_.allocate(bytes, stream);
  }
  void deallocate(void* pointer, void* stream) const noexcept override {
    device_.deallocate(pointer, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    device_.copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    device_.copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    device_.fill(to, value, bytes, stream);
  }
  void synchronize(void* stream) const override { device_.synchronize(stream); }
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    for (int repeat = 0; repeat < repeats; ++repeat) launch(nullptr, repeat);
    return repeats;
  }

 private:
  const Device& device_;
  DeviceInfo info_;
};

class HarnessTest : public TunerTest {
 protected:
  int copies(const Device& on) {
    return tuning::copies_to_rotate(*registry.find_op("scaling"), ProblemRef::of<Scaling>(problem),
                                    on);
  }
  int copies(std::int64_t l2_bytes) { return copies(CachedDevice(device, l2_bytes)); }
};

TEST_F(HarnessTest, CopiesFillTheCacheFourTimes) {
  problem.rows = 100;  // 800 bytes
  EXPECT_EQ(copies(8000), 40);
  EXPECT_EQ(copies(8001), 41);
  EXPECT_EQ(copies(200), 1);
  EXPECT_EQ(copies(1), 1);
  EXPECT_EQ(copies(1 << 20), 64) << "at most";
  EXPECT_EQ(copies(0), 1) << "nothing is known of a cache";
  EXPECT_EQ(copies(cpu_device()), 1) << "a caller's tensors are in the host's cache as well";
  problem.rows = 0;
  EXPECT_EQ(copies(4), 16) << "of no bytes as of one";
}

TEST_F(HarnessTest, EachLaunchIsOnTheNextOfTheCopiesAlsoFromSampleToSample) {
  std::vector<const float*> written;
  add({.compute = [&](const ScalingProblem&, const ScalingArgs& args, const TiledConfig&) {
    written.push_back(args.y);
  }});
  const CachedDevice cached(device, 1);
  tuning::Harness harness(*registry.find_op("scaling"), ProblemRef::of<Scaling>(problem), cached, 1,
                          3);
  const Candidate tried = candidate("test.scaling.tiled", "tile=1");
  harness.time_us(tried, 2);
  harness.time_us(tried, 5);
  ASSERT_EQ(written.size(), 7U);
  EXPECT_NE(written[0], written[1]);
  EXPECT_NE(written[1], written[2]);
  EXPECT_NE(written[0], written[2]);
  for (std::size_t i = 3; i < 7; ++i) EXPECT_EQ(written[i], written[i - 3]);
}

}  // namespace
}  // namespace attune::test
