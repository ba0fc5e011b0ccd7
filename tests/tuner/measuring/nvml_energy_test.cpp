// Energy by NVML, of a library made for these tests: there is no GPU here, nor has a build one.
#include <dlfcn.h>

#include <chrono>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/tuner/objective.hpp>

#include "tuner/fake_device.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

class NvmlEnergyTest : public testing::Test {
 protected:
  World world;
  DeviceInfo gpu(const std::string& uuid) const {
    DeviceInfo info = FakeDevice::fake_info();
    info.features = {"sm_90", "uuid:" + uuid};
    return info;
  }
  /// A function of the library's for these tests.
  template <class Function>
  static Function* fake(const char* name) {
    static void* const library = dlopen(ATTUNE_FAKE_NVML, RTLD_NOW);
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  static constexpr double kReadingUs = 10'000;
  const std::shared_ptr<const Objective> energy = make_energy_objective(ATTUNE_FAKE_NVML, [] {
    const int readings = fake<int()>("attune_fake_nvml_time")();
    return std::chrono::steady_clock::time_point(std::chrono::milliseconds(10 * readings));
  });
  FakeDevice with_counter{world, gpu("GPU-with-a-counter")};
};

TEST_F(NvmlEnergyTest, IsWhatTheLaunchesTookWhereverTheCountersTicksFall) {
  EXPECT_EQ(energy->why_unavailable(with_counter), "");
  EXPECT_EQ(energy->unit(), "uJ");
  EXPECT_GT(energy->least_sample_us(), 50'000);
  const auto wait = fake<void(int readings)>("attune_fake_nvml_wait");
  const auto launch = fake<void(int readings, int millijoules)>("attune_fake_nvml_launch");
  for (const int readings : {1, 4, 9, 10, 17, 40}) {  // a tick is ten of them
    int runs = 0;
    const auto run = [&] {
      wait(readings / 3);  // for the launches to be queued
      launch(readings, 320);
      ++runs;
      return kReadingUs * readings;
    };
    EXPECT_NEAR(energy->score({Candidate(), ProblemRef(), with_counter, 8, run}), 320 * 1000.0 / 8,
                1e-6)
        << readings;
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(NvmlEnergyTest, SaysOfAGpuWithoutACounterWhatNvmlSays) {
  const FakeDevice without(world, gpu("GPU-without"));
  EXPECT_THAT(energy->why_unavailable(without),
              HasSubstr("nvmlDeviceGetTotalEnergyConsumption: Not Supported"));
  const auto run = [] { return 1.0; };
  EXPECT_THROW(energy->score({Candidate(), ProblemRef(), without, 1, run}), ExecutionError);
}

TEST_F(NvmlEnergyTest, KnowsNoGpuButNvmls) {
  EXPECT_THAT(energy->why_unavailable(FakeDevice(world, gpu("GPU-of-another-machine"))),
              HasSubstr("nvmlDeviceGetHandleByUUID: Not Found"));
  EXPECT_EQ(energy->why_unavailable(cpu_device()), "cpu:0 is not a GPU of NVIDIA's");
}

TEST_F(NvmlEnergyTest, SaysThatNvmlIsNotThere) {
  const auto none = make_energy_objective("libattune-has-no-such-library.so.1");
  EXPECT_THAT(none->why_unavailable(with_counter), HasSubstr("NVML is not there: "));
  const auto other = make_energy_objective("libm.so.6");
  EXPECT_EQ(other->why_unavailable(with_counter), "NVML has no nvmlInit_v2");
}

TEST(FindObjective, KnowsTimeAndEnergy) {
  EXPECT_EQ(find_objective("time"), nullptr);
  EXPECT_EQ(find_objective("energy")->name(), "energy");
  EXPECT_THROW(find_objective("power"), InvalidArgument);
}

}  // namespace
}  // namespace attune::test
