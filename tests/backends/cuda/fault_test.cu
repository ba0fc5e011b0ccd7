// A fault of the device: recognised, and never blamed on a kernel of ours.
#include <cuda_runtime.h>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

__global__ void write_to_nowhere(int* nowhere) { *nowhere = 1; }

/// A host that loses the device and then calls attune, which was about to tune. Ends the process: 0
/// when the fault was reported as one and nothing was stored.
[[noreturn]] void call_after_a_fault(const std::string& database) {
  const auto context = make_context({.policy = Policy::kTune, .database = database});
  const Device& gpu = *context->registry().find_device({"gpu", 0});
  RandomTensors random(1);
  const Tensor q = upload(random({1, 64, 2, 64}, DType::kBF16), gpu);
  write_to_nowhere<<<1, 1>>>(nullptr);
  bool reported = false;
  try {
    ops::recurrent_attention(q, q, q, {.call = {.context = context.get()}});
    gpu.synchronize(nullptr);
  } catch (const DeviceFault&) {
    reported = true;
  }
  bool stored = false;
  for (const auto& file : chain_of(*context).store().status()) stored = stored || file.rows > 0;
  std::_Exit(reported && !stored ? 0 : 1);
}

TEST(DeviceFaults, OfTheHostAreReportedAndNothingIsStored) {
  if (find_gpu() == nullptr) GTEST_SKIP() << kNeedsGpu;
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // CUDA does not survive a fork
  const TemporaryFolder folder;
  EXPECT_EXIT(call_after_a_fault((folder.path() / "db").string()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attune::test
