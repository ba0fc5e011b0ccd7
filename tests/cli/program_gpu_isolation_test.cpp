// `attune tune` lives with candidates that bring a GPU to grief.
#include "bad_kernels.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuIsolationTest : public BadKernelsTest {
 protected:
  GpuIsolationTest() : BadKernelsTest(BAD_GPU_KERNELS_PLUGIN, {"--backend", "gpu"}) {}

  void SetUp() override {
    constexpr int kNoDevice = 3;
    if (here.run({"tune", "recurrent_attention", "T=64 H=1 D=16", "--backend", "gpu", "--dry-run"})
            .exit_code == kNoDevice) {
      GTEST_SKIP() << "needs a GPU";
    }
  }
};

/// A fault of the device: the worker is lost with it.
Rejection lost_to(const std::string& error) {
  return {"crashed", AllOf(HasSubstr("left the device unusable"), HasSubstr(error))};
}

TEST_F(GpuIsolationTest, EveryBadKernelIsRejectedWithTheRightReason) {
  expect_rejections({
      {"leaves_the_tail", {"wrong", HasSubstr("y: not finite at [15]")}},
      {"leaves_its_output", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"is_a_little_wrong", {"wrong", HasSubstr("y: relative error")}},
      {"gives_nan", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"is_wrong_when_large", {"wrong", HasSubstr("inf at [1000]")}},
      {"reads_its_output", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"races", {"wrong", HasSubstr("two runs do not give the same bits")}},
      {"writes_past_the_end", {"wrong", HasSubstr("past the end of a block of 64 bytes")}},
      {"writes_before_the_beginning", {"wrong", HasSubstr("before a block of 64 bytes")}},
      {"writes_past_its_workspace", {"wrong", HasSubstr("past the end of a block of 100 bytes")}},
      {"changes_its_input", {"wrong", HasSubstr("changes its inputs")}},
      {"writes_far_away", lost_to("illegal memory access")},
      {"is_misaligned", lost_to("misaligned address")},
      {"traps", lost_to("unspecified launch failure")},
      {"asserts", lost_to("device-side assert triggered")},
      {"loops_for_ever", {"crashed", HasSubstr("no answer in 1")}},
      {"ignores_its_stream", {"wrong", HasSubstr("nothing on the stream that it is given")}},
      {"takes_too_much_shared_memory", {"failed", HasSubstr("invalid argument")}},
      {"takes_too_many_threads", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"uses_all_memory", {"failed", HasSubstr("out of memory")}},
      {"needs_a_pebibyte", {"failed", HasSubstr("out of memory")}},
      {"resets_the_device", {"crashed", HasSubstr("killed by SIG")}},
      {"is_slow", {"slow", HasSubstr("times slower")}},
      {"is_wrong_later", {"wrong", HasSubstr("at full size: y: NaN at [")}},
      {"traps_later", lost_to("unspecified launch failure")},
  });
}

}  // namespace
}  // namespace attune::test
