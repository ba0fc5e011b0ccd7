// What gate_gradients_test.cpp, not_finite_test.cpp and packed_batches_test.cpp hold the kernels of
// a host to, for those of platform cuda.
#include <string_view>

#include <gtest/gtest.h>

#include "backends/cuda/gpu.hpp"
#include "support/gate_gradients.hpp"
#include "support/not_finite.hpp"
#include "support/packed_batches.hpp"

namespace attune::test {
namespace {

/// Each kernel's, in turn; an older GPU has no use for some of them.
template <class Expect>
void for_each_gpu_kernel(const Device& gpu, const Expect& expect) {
  int count = 0;
  for (const KernelOnDevice& on : kernels_on_devices(heuristic_context().registry())) {
    if (on.device == &gpu) count += expect(on, gpu.info());
  }
  EXPECT_GT(count, 0);
}

TEST(GpuBounds, StrongGatesKeepTheirGradients) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for_each_gpu_kernel(*gpu, [](const KernelOnDevice& on, const DeviceInfo& info) {
    const bool has_gradients = on.op->name == ops::RecurrentAttentionBackward::kName;
    return has_gradients ? expect_gate_gradients_within_bounds(on, info) : 0;
  });
}

TEST(GpuBounds, ANanReachesItsHeadSequenceAndChunkAtMost) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for_each_gpu_kernel(*gpu, [](const KernelOnDevice& on, const DeviceInfo& info) {
    const bool is_attention = on.op->name.starts_with("recurrent_");
    return is_attention ? expect_only_the_allowed_is_reached(on, info) : 0;
  });
}

TEST(GpuBounds, PackedSequencesOfOneLengthAreTheirBatch) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for_each_gpu_kernel(*gpu, [](const KernelOnDevice& on, const DeviceInfo&) {
    if (!on.op->name.starts_with("recurrent_attention")) return 0;
    const std::string_view name = on.kernel->name();
    const bool by_longest =
        name.ends_with(".backward") || name == "cuda.fused_recurrent" || name == "cuda.chunk_tf32";
    return expect_packed_sequences_are_their_batch(
        on, by_longest ? PackedCuts::kByLongest : PackedCuts::kAsBatch);
  });
}

}  // namespace
}  // namespace attune::test
