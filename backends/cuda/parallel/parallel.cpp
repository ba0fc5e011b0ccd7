#include "cuda/parallel/parallel.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
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
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::parallel {
namespace {

using AttentionProblem = ops::RecurrentAttentionProblem;
using ForwardArgs = ops::RecurrentAttentionArgs;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

constexpr int kWarpSize = 32;

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

template <class Args>
Inputs inputs_of(const AttentionProblem& problem, const Args& args) {
  Inputs p;
  p.sequences = sequences_view(args.cu_seqlens, problem.T);
  p.sequence_count = problem.sequences();
  p.batches = problem.B;
  p.heads = problem.H;
  p.heads_per_kv = problem.H / problem.Hkv;
  p.keys = static_cast<int>(problem.K);
  p.values = static_cast<int>(problem.V);
  p.descending = problem.reverse;
  p.scale = static_cast<float>(args.scale);
  p.q = token_view(args.q);
  p.k = token_view(args.k);
  p.v = token_view(args.v);
  p.shared_gate = gate_view(args.g);
  p.key_gate = gate_view(args.gk);
  p.value_gate = gate_view(args.gv);
  p.gamma = decay_view(args.gamma, problem.H);
  return p;
}

/// Whether no sequence has more than one token.
bool has_single_tokens(const AttentionProblem& problem) { return problem.N == 0 && problem.T == 1; }

/// Microseconds, fitted to 63 problems forward and 50 backward on an H100.
struct Costs {
  double launches;
  double find;                   // of packed sequences a token's, for each halving of them
  double step, step_of_channel;  // of a warp's tokens one after the other
  double gated;                  // share of that for a side whose channels have gates
  double many;                   // of what warps that wait for each other have in all
  double channel;
  // Of gradients of channels' gates, for each token of the longest sequence, and of shared gates alone.
  double sum, sum_token, shared_sum;
};
constexpr Costs kForwardCosts{1.39, 0.234, 0.251, 0.0147, 0.492, 3.1, 0.00791, 0, 0, 0};
constexpr Costs kBackwardCosts{2.17, 0.169, 0.0183, 0.00805, 0.762, 13.6, 0.0131, 2.41, 0.44, 4.51};

/// Where the longest sequence has so many tokens and one has so many to go to, on average.
double pairs_us(const AttentionProblem& problem, const DeviceInfo& device, bool backward,
                double longest, double steps) {
  constexpr int kWarpsOfCore = 16;
  const Costs& cost = backward ? kBackwardCosts : kForwardCosts;
  const double channels_of_lane = static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(
      std::max<std::int64_t>(ceil_div(std::max(problem.K, problem.V), kWarpSize), 2))));
  const int channel_gates =
      ((problem.gates & ops::kGateGk) != 0 ? 1 : 0) + ((problem.gates & ops::kGateGv) != 0 ? 1 : 0);
  const double step =
      cost.step + cost.step_of_channel * channels_of_lane * (1 + cost.gated * channel_gates);
  const double warps = static_cast<double>(problem.B * problem.T * problem.H) /
                       (std::max(device.cores, 1) * kWarpsOfCore);
  const auto group = static_cast<double>(problem.H / problem.Hkv);
  const double passes = backward ? 2 : 1;
  const bool sums_gates = backward && problem.gates != 0 && !has_single_tokens(problem);
  const double sums = !sums_gates         ? 0
                      : channel_gates > 0 ? cost.sum + cost.sum_token * longest
                                          : cost.shared_sum;
  const double find =
      cost.find * std::log2(static_cast<double>(std::max<std::int64_t>(problem.N, 1)));
  return cost.launches + find + cost.channel * channels_of_lane + sums +
         longest * step * (1 + (backward ? group : 0)) + passes * cost.many * warps * steps * step;
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

/// The memory of a backward pass, of which none is there while its bytes are counted.
struct BackwardMemory {
  BackwardMemory(const AttentionProblem& problem, std::byte* memory) : parts(memory) {
    const std::int64_t rows = problem.B * problem.T * problem.H;
    const auto terms = [&](bool given, std::int64_t channels) -> GateTerms {
      if (!given) return {};
      return {floats(rows * channels), floats(rows * channels)};
    };
    shared_terms = terms((problem.gates & (ops::kGateG | ops::kGateGamma)) != 0, 1);
    key_terms = terms((problem.gates & ops::kGateGk) != 0, problem.K);
    value_terms = terms((problem.gates & ops::kGateGv) != 0, problem.V);
    if ((problem.gates & ops::kGateGamma) != 0 && problem.sequences() > 1)
      gamma_terms = floats(problem.sequences() * problem.H);
  }
  float* floats(std::int64_t count) {
    return parts.take<float>(count * static_cast<std::int64_t>(sizeof(float)));
  }

  WorkspaceParts parts;
  GateTerms shared_terms, key_terms, value_terms;
  float* gamma_terms = nullptr;  // [N, H], where sequences may share a gradient
};

/// All but where the gradient of gamma goes.
BackwardParams backward_params(const AttentionProblem& problem, const BackwardArgs& args,
                               const BackwardMemory& memory) {
  BackwardParams params;
  static_cast<Inputs&>(params) = inputs_of(problem, args);
  params.d_o = token_view(args.d_o);
  params.dq = token_view(args.dq);
  params.dk = token_view(args.dk);
  params.dv = token_view(args.dv);
  params.shared_terms = memory.shared_terms;
  params.key_terms = memory.key_terms;
  params.value_terms = memory.value_terms;
  params.dg = token_view(args.dg);
  params.dgk = token_view(args.dgk);
  params.dgv = token_view(args.dgv);
  params.single_tokens = has_single_tokens(problem);
  return params;
}

void launch_of_type(const AttentionProblem& problem, const BackwardParams& params, int warps,
                    cudaStream_t stream) {
  with_element<float, __half, __nv_bfloat16>(
      problem.dtype, [&]<class T>() { launch_backward<T>(params, warps, stream); });
}

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
    params.dgamma_sign = args.gamma.source == ops::ConstantDecay::Source::kSlopes ? -1.0F : 1.0F;
    const bool has_terms =
        dgamma.data != nullptr && dgamma.sequence == 0 && problem.sequences() > 1;
    params.dgamma = has_terms && !params.single_tokens
                        ? StateView{.data = memory.gamma_terms, .sequence = problem.H, .head = 1}
                        : dgamma;
    launch_of_type(problem, params, config.warps, stream);
    if (!has_terms || params.single_tokens) return;
    launch_sum_of_walks({.terms = memory.gamma_terms,
                         .out = dgamma,
                         .heads = params.heads,
                         .sequences = params.sequences,
                         .sequence_count = params.sequence_count},
                        1, stream);
  }
};

}  // namespace

double short_sequences_us(const AttentionProblem& problem, const DeviceInfo& device,
                          double tokens) {
  return pairs_us(problem, device, true, tokens, (tokens + 1) / 2);
}

std::size_t short_sequences_bytes(const AttentionProblem& problem) {
  return BackwardMemory(problem, nullptr).parts.used();
}

void launch_short_sequences(const AttentionProblem& problem, const BackwardArgs& args,
                            float* dgamma_terms, int terms_of_head, std::byte* memory,
                            cudaStream_t stream) {
  BackwardParams params = backward_params(problem, args, BackwardMemory(problem, memory));
  params.most_tokens = kShortSequence;
  if (dgamma_terms != nullptr) {
    params.dgamma = {
        .data = dgamma_terms, .sequence = problem.H * terms_of_head, .head = terms_of_head};
    params.dgamma_terms = terms_of_head;
  }
  launch_of_type(problem, params, ParallelConfig<ops::RecurrentAttentionBackward>{}.warps, stream);
}

}  // namespace attune::cuda::parallel

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_parallel() {
  return std::make_unique<parallel::Parallel>();
}
std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_parallel_backward() {
  return std::make_unique<WithRowsBehind<parallel::ParallelBackward>>();
}
