// Digests that a GPU makes of what is in its memory.
#include <gtest/gtest.h>

#include "backends/cuda/gpu.hpp"
#include "support/digest_claims.hpp"

namespace attune::test {
namespace {

TEST(GpuDigest, TellsArraysApartAndFindsWhatIsNotFinite) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  ASSERT_NE(dynamic_cast<const DigestingDevice*>(gpu), nullptr);
  expect_digests(*gpu);
}

}  // namespace
}  // namespace attune::test
