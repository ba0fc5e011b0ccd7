// Digests and copies that a GPU makes of what is in its memory.
#include <gtest/gtest.h>

#include "backends/cuda/gpu.hpp"
#include "support/in_place_claims.hpp"

namespace attune::test {
namespace {

TEST(GpuInPlace, DigestsAndCopies) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  ASSERT_NE(dynamic_cast<const InPlaceDevice*>(gpu), nullptr);
  expect_digests(*gpu);
  expect_copies(*gpu);
}

}  // namespace
}  // namespace attune::test
