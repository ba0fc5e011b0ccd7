// CUDA graphs: every kernel can be recorded and replayed, and a call on a recording stream only
// looks up, whatever else the context does.
#include <algorithm>

#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

#include "backends/cuda/gpu.hpp"
#include "backends/cuda/recording.hpp"
#include "ops/shapes.hpp"
#include "support/heuristic_context.hpp"
#include "support/kernel_runs.hpp"
#include "support/random_tensor.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

constexpr std::size_t kProblemsEach = 12;

std::vector<KernelOnDevice> gpu_kernels() {
  std::vector<KernelOnDevice> all = kernels_on_devices(heuristic_context().registry());
  std::erase_if(all, [](const KernelOnDevice& on) { return on.device != find_gpu(); });
  return all;
}

std::vector<AnyProblem> some_problems(const KernelOnDevice& on) {
  std::vector<AnyProblem> problems;
  const auto shapes = std::ranges::find(all_shapes(), on.op->name, &OpShapes::op);
  for (const std::string& text : problems_of(*shapes)) {
    AnyProblem problem = on.op->parse(parse_params(text, ' '));
    if (on.kernel->erased_supports(problem, on.info())) problems.push_back(std::move(problem));
    if (problems.size() == kProblemsEach) break;
  }
  return problems;
}

TEST(Capture, EveryKernelReplaysToTheSameBits) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  for (const KernelOnDevice& on : gpu_kernels()) {
    const std::vector<AnyProblem> problems = some_problems(on);
    EXPECT_FALSE(problems.empty()) << on;
    for (const AnyProblem& problem : problems) {
      const ConfigBlob config = on.kernel->erased_heuristic(problem, on.info());
      SCOPED_TRACE(str(on, " ", on.op->text(problem, false), " ", config_text(*on.kernel, config)));
      const std::unique_ptr<Case> inputs = on.op->make_case(problem, *gpu, 1);
      const auto bytes =
          static_cast<std::int64_t>(on.kernel->erased_workspace_bytes(problem, config));
      Tensor workspace(DType::kF32, {(bytes + 3) / 4}, *gpu);
      gpu->synchronize(nullptr);

      Recording recording;
      recording.begin();
      on.kernel->erased_run(
          problem, inputs->args(), config,
          {recording.stream(),
           {static_cast<std::byte*>(workspace.view().data), static_cast<std::size_t>(bytes)}});
      recording.end();
      const TensorMap direct = run_on(*inputs, on, config, std::byte{0xff});
      for (const std::byte poison : {std::byte{0x4b}, std::byte{0xff}}) {
        inputs->reset(poison);
        recording.replay();
        EXPECT_EQ(first_difference(direct, copy_outputs(*inputs, *gpu)), "");
      }
    }
  }
}

TEST(Capture, ACallOnARecordingStreamLooksUpAndATuningBesideItDisturbsNothing) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  const TemporaryFolder folder;
  const auto context =
      make_context({.policy = Policy::kTune, .database = (folder.path() / "db").string()});
  RandomTensors random(1);
  const Extents shape{1, 300, 4, 64};
  const Tensor q = upload(random(shape, DType::kBF16), *gpu);
  const Tensor k = upload(random(shape, DType::kBF16), *gpu);
  const Tensor v = upload(random(shape, DType::kBF16), *gpu);
  Tensor o(DType::kBF16, shape, *gpu);
  const auto call = [&](void* stream) {
    return ops::RecurrentAttentionOptions{.call = {.context = context.get(), .stream = stream}};
  };
  const auto bits = [&] { return to_doubles(to_host(o, *gpu)); };

  Recording recording;
  recording.begin();
  ops::recurrent_attention_into({.o = o}, q, k, v, call(recording.stream()));
  recording.end();
  EXPECT_EQ(chain_of(*context).counters().tunings, 0);
  recording.replay();
  const std::vector<double> recorded = bits();

  ops::recurrent_attention_into({.o = o}, q, k, v,
                                call(nullptr));  // tunes, and writes the database
  gpu->synchronize(nullptr);
  EXPECT_EQ(chain_of(*context).counters().tunings, 1);
  gpu->fill(o.view().data, std::byte{0xff}, o.bytes(), nullptr);
  gpu->synchronize(nullptr);
  recording.replay();
  EXPECT_EQ(bits(), recorded);
}

}  // namespace
}  // namespace attune::test
