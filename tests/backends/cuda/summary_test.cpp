// What conformance does not reach of the kernels of state_summary and state_fold: tokens by the
// hundred thousand, in every number of segments, and bounds and indices that only the device knows.
#include <cmath>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/kernel_runs.hpp"

namespace attune::test {
namespace {

std::vector<KernelOnDevice> gpu_kernels_of(std::string_view name, const Device& gpu) {
  std::vector<KernelOnDevice> kernels;
  for (const KernelOnDevice& on : kernels_on_devices(heuristic_context().registry())) {
    if (on.device == &gpu && on.op->name == name) kernels.push_back(on);
  }
  return kernels;
}

TEST(CudaSummary, OfAHundredThousandTokensIsTheOracles) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  const auto kernels = gpu_kernels_of(ops::StateSummary::kName, *gpu);
  ASSERT_EQ(kernels.size(), 3U);
  for (const char* const text :
       {"T=100000 H=2 K=64 V=64 gate=g+gamma dtype=bf16",
        "N=3 T=100003 H=2 Hkv=1 K=128 V=72 gate=g inclusive=yes reverse=yes h0=yes dtype=f16",
        "T=300000 H=1 K=8 V=8 gate=g+gamma", "T=100003 H=2 Hkv=1 K=40 V=24 gate=g+gk+gv h0=yes",
        "T=100000 H=2 K=32 V=32 gate=gk inclusive=yes reverse=yes dtype=bf16",
        "N=3 T=100000 H=1 K=33 V=7 gate=gk+gv inclusive=yes h0=yes", "T=100000 H=1 K=16 V=16"}) {
    const AnyProblem problem = kernels[0].op->parse(parse_params(text, ' '));
    const TensorMap expected =
        oracle_outputs(heuristic_context().registry(), kernels[0], problem, 1);
    const std::unique_ptr<Case> inputs = kernels[0].op->make_case(problem, *gpu, 1);
    for (const KernelOnDevice& on : kernels) {
      if (!on.kernel->erased_supports(problem, gpu->info())) continue;
      for (const ConfigBlob& config : configs_of(on, problem)) {
        SCOPED_TRACE(str(on, ", ", text, ", ", config_text(*on.kernel, config)));
        run_on(*inputs, on, config, std::byte{0xff});
        for (const OutputCheck& check : inputs->compare(expected)) {
          EXPECT_TRUE(check.passed) << check.name << ": error " << check.error << ", tolerance "
                                    << check.tolerance << " " << check.reason;
        }
      }
    }
  }
}

/// Runs cuda.state_fold on one head of one element a state.
std::vector<float> folded(const Device& gpu, const Tensor& added, const Tensor& logs,
                          const Tensor& initial, const std::vector<std::int64_t>& slots,
                          const std::vector<std::int32_t>& offsets,
                          const std::vector<std::int32_t>& order) {
  const auto size = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  const std::int64_t targets = size(slots);
  const Tensor on_gpu[] = {upload(added, gpu),
                           upload(logs, gpu),
                           upload(initial, gpu),
                           upload(Tensor::of(slots, {targets}), gpu),
                           upload(Tensor::of(offsets, {size(offsets)}), gpu),
                           upload(Tensor::of(order, {size(order)}), gpu)};
  Tensor result(DType::kF32, {targets, 1, 1, 1}, gpu);
  ops::StateFoldArgs args;
  args.final_state = on_gpu[0];
  args.gk_sum = on_gpu[1];
  args.initial_state = on_gpu[2];
  args.initial_slots = on_gpu[3];
  args.fold_offsets = on_gpu[4];
  args.fold_order = on_gpu[5];
  args.folded = result;
  const ops::StateFoldProblem problem{
      .F = targets, .M = added.shape()[0], .L = size(order), .H = 1, .K = 1, .V = 1, .h0 = true};
  const KernelOnDevice on = gpu_kernels_of(ops::StateFold::kName, gpu).at(0);
  const AnyProblem any = AnyProblem::of<ops::StateFold>(problem);
  on.kernel->erased_run(any, &args, on.kernel->erased_heuristic(any, on.info()), {nullptr, {}});
  const Tensor host = to_host(result, gpu);
  return {host.values<float>().begin(), host.values<float>().end()};
}

TEST(CudaFold, AResetLeavesNothingOfAnInfiniteState) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto got =
      folded(*gpu, Tensor::of<float>({1.0F, 2.0F}, {2, 1, 1, 1}),
             Tensor::of<float>({-kInfinity, 0.0F}, {2, 1, 1}),
             Tensor::of<float>({kInfinity, 5.0F}, {2, 1, 1, 1}), {0, 1}, {0, 2, 3}, {0, 1, 1});
  EXPECT_EQ(got[0], 3.0F);
  EXPECT_EQ(got[1], 7.0F);
}

TEST(CudaFold, WrongIndicesStayWithinTheTensors) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  const auto got =
      folded(*gpu, Tensor::of<float>({1.0F, 2.0F}, {2, 1, 1, 1}),
             Tensor::of<float>({0.0F, 0.0F}, {2, 1, 1}),
             Tensor::of<float>({3.0F, 5.0F}, {2, 1, 1, 1}), {kFar, -kFar},
             {-1'000'000'000, 2, 1'000'000'000}, {-2'000'000'000, 2'000'000'000, 1'000'000});
  EXPECT_EQ(got[0], 3.0F) << "from zero: the first summary, then the last";
  EXPECT_EQ(got[1], 2.0F) << "from zero: the last summary";
}

}  // namespace
}  // namespace attune::test
