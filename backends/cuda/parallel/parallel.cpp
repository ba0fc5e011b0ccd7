#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>

#include <attune/core/config_axes.hpp>
#include <attune/core/kernel.hpp>

#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/rows_behind.hpp"
#include "cuda/kernels.hpp"
#include "cuda/pairs/expected_time.hpp"
#include "cuda/pairs/gradients.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::parallel {
namespace {

using namespace pairs;
using AttentionProblem = ops::RecurrentAttentionProblem;
using ForwardArgs = ops::RecurrentAttentionArgs;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

/// Of either pass.
template <class KernelOp>
struct ParallelConfig {
  using Op = KernelOp;
  int warps = 4;  // of a block, a token each
  friend constexpr bool operator==(const ParallelConfig&, const ParallelConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("warps", &ParallelConfig::warps, {1, 2, 4, 8})};
  }
};

/// Sequences are short: on average, and the longest that packed ones can be.
Support takes(const AttentionProblem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kMostPackedTokens = 1024;
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  if (const Support few = has_few_tokens(problem); !few) return few;
  if (problem.N > 0 && problem.T > kMostPackedTokens) {
    return Support::no(refused::kShape, str("takes at most ", kMostPackedTokens, " packed tokens"));
  }
  if (std::max(problem.K, problem.V) > kMostChannels) {
    return Support::no(refused::kShape, str("takes K and V up to ", kMostChannels));
  }
  return Support::yes();
}

double few_tokens_us(const AttentionProblem& problem, const DeviceInfo& device, bool backward) {
  const LikelyLengths lengths(problem);  // pairs of tokens grow with the square of a length
  return lengths.average([&](double longest) {
    return pairs_us(problem, device, backward, longest, lengths.steps(longest));
  });
}

/// What both kernels have alike.
template <class Op>
class ParallelKernel : public Kernel<ParallelConfig<Op>> {
 public:
  using Config = ParallelConfig<Op>;

  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "reverse"};
  }
  Support supports(const AttentionProblem& problem, const DeviceInfo& device) const override {
    return takes(problem, device);
  }
  Config heuristic_config(const AttentionProblem&, const DeviceInfo&) const override { return {}; }
  std::optional<double> expected_us(const AttentionProblem& problem,
                                    const DeviceInfo& device) const override {
    return few_tokens_us(problem, device, !std::is_same_v<Op, ops::RecurrentAttention>);
  }
};

class Parallel : public ParallelKernel<ops::RecurrentAttention> {
 public:
  std::string_view name() const noexcept override { return "cuda.parallel"; }

  void run(const AttentionProblem& problem, const ForwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const ForwardParams params{inputs_of(problem, args), token_view(args.o)};
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      launch_forward<T>(params, config.warps, static_cast<cudaStream_t>(site.stream));
    });
  }
};

StateView gamma_gradient_of(const BackwardArgs& args) {
  if (!args.dgamma) return {};
  return {.data = static_cast<float*>(args.dgamma->data),
          .sequence = args.dgamma->stride(0),
          .head = args.dgamma->stride(1)};
}

class ParallelBackward : public ParallelKernel<ops::RecurrentAttentionBackward> {
 public:
  std::string_view name() const noexcept override { return "cuda.parallel.backward"; }

  std::size_t workspace_bytes(const AttentionProblem& problem, const Config&) const override {
    return BackwardMemory(problem, nullptr).parts.used();
  }

  void run(const AttentionProblem& problem, const BackwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const BackwardMemory memory(problem, site.workspace.data());
    BackwardParams params = backward_params(problem, args, memory);
    const StateView dgamma = gamma_gradient_of(args);
    const bool has_terms = dgamma.data != nullptr && dgamma.sequence == 0 &&
                           problem.sequences() > 1 && !params.single_tokens;
    params.dgamma = {.data = dgamma.data, .sequence = dgamma.sequence, .head = dgamma.head};
    if (has_terms) params.dgamma = {.data = memory.gamma_terms, .sequence = problem.H, .head = 1};
    if (args.gamma.source == ops::ConstantDecay::Source::kSlopes) params.dgamma.sign = -1.0F;
    launch_gradients(problem, params, config.warps, stream);
    if (!has_terms) return;
    launch_sum_of_walks({.terms = memory.gamma_terms,
                         .out = dgamma,
                         .heads = params.heads,
                         .sequences = params.sequences,
                         .sequence_count = params.sequence_count},
                        1, stream);
  }
};

}  // namespace

}  // namespace attune::cuda::parallel

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_parallel() {
  return std::make_unique<parallel::Parallel>();
}
std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_parallel_backward() {
  return std::make_unique<WithRowsBehind<parallel::ParallelBackward>>();
}
