// What gate_gradients_test.cpp and not_finite_test.cpp hold the kernels of a host to, for those on
// tile registers with the registers emulated (emulated_tiles.cpp).
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "support/gate_gradients.hpp"
#include "support/heuristic_context.hpp"
#include "support/not_finite.hpp"

namespace attune::test {
namespace {

KernelOnDevice kernel_on_host(std::string_view name) {
  const RegisteredKernel& found = *heuristic_context().registry().find_kernel(name);
  for (const KernelOnDevice& on : kernels_on_devices(heuristic_context().registry())) {
    if (on.kernel == found.kernel.get()) return on;
  }
  throw InvalidArgument(str("no kernel ", name));
}

/// This host, were it one that the kernels are for.
DeviceInfo host_with_tiles() {
  DeviceInfo info = cpu_device().info();
  for (const char* const feature : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq",
                                    "avx512vl", "avx512_bf16", "amx_bf16"}) {
    if (!info.has(feature)) info.features.emplace_back(feature);
  }
  return info;
}

TEST(SimdChunkTilesBounds, StrongGatesKeepTheirGradients) {
  const KernelOnDevice on = kernel_on_host("simd.chunk_tiles.backward");
  EXPECT_GT(expect_gate_gradients_within_bounds(on, host_with_tiles()), 0);
}

TEST(SimdChunkTilesBounds, ANanReachesItsChunkAtMost) {
  for (const char* const name : {"simd.chunk_tiles", "simd.chunk_tiles.backward"}) {
    EXPECT_GT(expect_only_the_allowed_is_reached(kernel_on_host(name), host_with_tiles()), 0);
  }
}

// Were the header to say less, it would be wrong.
TEST(SimdChunkTilesBounds, ANanReachesNearlyAllOfAChunkOf64Tokens) {
  const KernelOnDevice on = kernel_on_host("simd.chunk_tiles.backward");
  const AnyProblem problem =
      on.op->parse(parse_params("B=1 T=128 H=1 K=64 V=64 dtype=bf16 gate=gk", ' '));
  Params params = on.kernel->params(on.kernel->erased_heuristic(problem, host_with_tiles()));
  std::ranges::find(params, "chunk", &Param::name)->value = "64";
  SpoiltCase spoilt(on, problem, 1);
  const SpoiltInput second{
      .name = "gk", .row = 1, .head = 0, .value = std::numeric_limits<float>::quiet_NaN()};
  const std::vector<ReachedRow> reached = spoilt.reached(on.kernel->parse(params), second);
  const auto allowed_by = [&](std::int64_t reach) {
    return std::ranges::all_of(
        reached, [&](const ReachedRow& row) { return spoilt.is_allowed(second, row, reach); });
  };
  EXPECT_TRUE(allowed_by(kChunkReach - 1));
  EXPECT_FALSE(allowed_by(kChunkReach - 2));
}

}  // namespace
}  // namespace attune::test
