// simd.chunk_tiles on a pool of states, with its tile registers emulated (emulated_tiles.cpp):
// every other kernel of a CPU is held to the same by conformance_test.cpp, whatever the CPU.
#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "support/heuristic_context.hpp"
#include "support/kernel_runs.hpp"

namespace attune::test {
namespace {

KernelOnDevice kernel_on_host(std::string_view name) {
  const RegisteredKernel& found = *heuristic_context().registry().find_kernel(name);
  for (const KernelOnDevice& on : kernels_on_devices(heuristic_context().registry())) {
    if (on.kernel == found.kernel.get()) return on;
  }
  throw InvalidArgument(str("no kernel ", name));
}

class SimdChunkTilesPools : public testing::TestWithParam<const char*> {};

// In whole tiles, which are read where they lie, and in parts of them.
TEST_P(SimdChunkTilesPools, HoldWhatTheOracleSays) {
  const KernelOnDevice on = kernel_on_host("simd.chunk_tiles");
  for (const char* const sizes : {"B=2 T=200 H=2 K=32 V=64", "N=4 T=333 H=2 Hkv=1 K=33 V=40"}) {
    for (const char* const gates : {"none", "g", "gk", "gv+gamma"}) {
      for (const char* const chunk : {"32", "64"}) {
        const std::string text = str(sizes, " dtype=bf16 gate=", gates, " ", GetParam());
        SCOPED_TRACE(str(text, " chunk=", chunk));
        const AnyProblem problem = on.op->parse(parse_params(text, ' '));
        Params params = on.kernel->params(on.kernel->erased_heuristic(problem, on.info()));
        std::ranges::find(params, "chunk", &Param::name)->value = chunk;
        const std::unique_ptr<Case> made = on.op->make_case(problem, *on.device, 3);
        const TensorMap first = run_on(*made, on, on.kernel->parse(params), std::byte{0xff});
        const TensorMap expected = oracle_outputs(heuristic_context().registry(), on, problem, 3);
        for (const OutputCheck& check : made->compare(expected)) {
          EXPECT_TRUE(check.passed) << check.name << ": " << check.error << " " << check.reason;
        }
        const TensorMap again = run_on(*made, on, on.kernel->parse(params), std::byte{0x4b});
        EXPECT_EQ(first_difference(first, again), "");
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Options, SimdChunkTilesPools,
                         testing::Values("pool=yes", "pool=yes initial_slots=yes snapshot_every=64",
                                         "pool=yes snapshot_every=64 reverse=yes",
                                         "pool=yes initial_slots=yes snapshot_every=64 state=bf16",
                                         "pool=yes state=f16 rounding=stochastic",
                                         "h0=yes ht=yes state=bf16", "h0=no ht=yes state=f16"));

}  // namespace
}  // namespace attune::test
