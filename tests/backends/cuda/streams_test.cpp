// Several streams and threads at once.
#include <cuda_runtime_api.h>

#include <thread>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "backends/cuda/gpu.hpp"
#include "ops/shapes.hpp"
#include "support/heuristic_context.hpp"
#include "support/kernel_runs.hpp"

namespace attune::test {
namespace {

constexpr int kThreads = 2;
constexpr int kLaunches = 20;

struct Work {
  std::string_view op;
  const char* problem;
};
constexpr Work kWork[] = {
    {"recurrent_attention", "B=2 T=700 H=4 D=64 dtype=bf16 gate=g h0=yes ht=yes"},
    {"recurrent_attention", "B=1 T=200 H=2 K=60 V=33 dtype=f32 gate=gk+gv ht=yes"},
    {"recurrent_attention.backward", "B=1 T=500 H=4 D=128 dtype=bf16 gate=gamma"},
    {"recurrent_attention.backward", "B=1 T=100 H=2 D=32 dtype=f32 gate=gk"},
    {"recurrent_decode", "B=64 S=64 H=8 D=128 dtype=bf16 gate=gamma"},
};

/// Calls visit(kernel, problem, its default config) for every kernel that takes some of the work.
template <class Visit>
void for_each_kernel(const Device& gpu, Visit&& visit) {
  const Registry& registry = heuristic_context().registry();
  for (const Work& work : kWork) {
    const OpInfo& op = registry.op(work.op);
    const AnyProblem problem = op.parse(parse_params(work.problem, ' '));
    for (const RegisteredKernel* const entry : registry.kernels(op.name, "cuda", "gpu")) {
      const KernelOnDevice on{&op, entry->kernel.get(), &gpu};
      if (!on.kernel->erased_supports(problem, on.info())) continue;
      SCOPED_TRACE(str(on, " ", work.problem));
      visit(on, problem, on.kernel->erased_heuristic(problem, on.info()));
    }
  }
}

/// Each thread runs every kernel on a stream, tensors and a workspace of its own, many times.
TEST(Streams, TwoThreadsOnTwoStreamsGiveTheBitsOfOne) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for_each_kernel(
      *gpu, [&](const KernelOnDevice& on, ProblemRef problem, const ConfigBlob& config) {
        const std::unique_ptr<Case> alone = on.op->make_case(problem, *gpu, 3);
        const TensorMap expected = run_on(*alone, on, config, std::byte{0xff});

        std::vector<std::string> differences(kThreads);
        const auto run = [&](std::size_t thread) {
          const std::unique_ptr<Case> inputs = on.op->make_case(problem, *gpu, 3);
          cudaStream_t stream = nullptr;
          ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
          for (int i = 0; i < kLaunches && differences[thread].empty(); ++i) {
            inputs->reset(std::byte{0xff});
            Executor::run_choice(inputs->problem(), inputs->args(),
                                 {.kernel = on.kernel, .config = config}, *gpu, stream);
            gpu->synchronize(stream);
            differences[thread] = first_difference(expected, copy_outputs(*inputs, *gpu));
          }
          cudaStreamDestroy(stream);
        };
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(run, i);
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(differences, std::vector<std::string>(kThreads));
      });
}

/// As in autograd's threads, where the caller has allocated all there is to allocate.
TEST(Streams, ALaunchMayBeAThreadsFirstCallOfCuda) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for_each_kernel(
      *gpu, [&](const KernelOnDevice& on, ProblemRef problem, const ConfigBlob& config) {
        const std::unique_ptr<Case> inputs = on.op->make_case(problem, *gpu, 3);
        const TensorMap expected = run_on(*inputs, on, config, std::byte{0xff});
        const auto bytes =
            static_cast<std::int64_t>(on.kernel->erased_workspace_bytes(problem, config));
        Tensor workspace(DType::kI32, {bytes / 4 + 1}, *gpu);
        inputs->reset(std::byte{0xff});
        gpu->synchronize(nullptr);
        std::string failure;
        std::thread([&] {
          try {
            on.kernel->erased_run(
                inputs->problem(), inputs->args(), config,
                {.workspace = {static_cast<std::byte*>(workspace.view().data), workspace.bytes()}});
          } catch (const std::exception& error) {
            failure = error.what();
          }
        }).join();
        gpu->synchronize(nullptr);
        EXPECT_EQ(failure, "");
        EXPECT_EQ(first_difference(expected, copy_outputs(*inputs, *gpu)), "");
      });
}

}  // namespace
}  // namespace attune::test
