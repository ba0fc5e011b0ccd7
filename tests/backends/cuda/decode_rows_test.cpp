// Steps of more rows than a grid has blocks along y, in each kernel that takes a row: what lies
// behind the 65,535th is computed as well.
#include <gtest/gtest.h>

#include <attune/core/params.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/kernel_runs.hpp"

namespace attune::test {
namespace {

class CudaDecodeRows : public testing::TestWithParam<const char*> {};

TEST_P(CudaDecodeRows, BehindTheLastOfAGridAgreeWithTheOracle) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  const Registry& registry = heuristic_context().registry();
  const OpInfo& op = registry.op(ops::RecurrentDecode::kName);
  const AnyProblem problem =
      op.parse(parse_params(str("B=65540 H=1 K=8 dtype=bf16 ", GetParam()), ' '));
  const KernelOnDevice on{&op, registry.kernels(op.name, "cuda", "gpu").front()->kernel.get(), gpu};
  constexpr std::uint64_t kSeed = 1;
  const TensorMap expected = oracle_outputs(registry, on, problem, kSeed);
  const std::unique_ptr<Case> inputs = op.make_case(problem, *gpu, kSeed);
  // A row that is left out has NaNs.
  run_on(*inputs, on, on.kernel->erased_heuristic(problem, on.info()), std::byte{0xff});
  for (const OutputCheck& check : inputs->compare(expected)) {
    EXPECT_TRUE(check.passed) << check.name << ": error " << check.error << ", tolerance "
                              << check.tolerance << " " << check.reason;
  }
}
INSTANTIATE_TEST_SUITE_P(Steps, CudaDecodeRows,
                         testing::Values("V=8", "V=7", "V=8 T=2", "V=8 T=2 R=3",
                                         "V=8 T=2 kept=yes S=131080", "V=8 T=2 gate=gk",
                                         "V=8 T=2 gate=gv", "V=7 T=2"),
                         [](const auto& test) { return str("of_", test.index); });

}  // namespace
}  // namespace attune::test
