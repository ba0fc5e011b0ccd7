#include <algorithm>

#include "cuda/chunk_mma/backward/expected_time.hpp"
#include "cuda/chunk_mma/backward/workspace.hpp"
#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/rows_behind.hpp"
#include "cuda/chunks/wide_rows.hpp"
#include "cuda/chunks/with_channel_slices.hpp"
#include "cuda/chunks/with_copies.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/gate_gradients.hpp"

namespace attune::cuda::chunk_mma::backward {
namespace {

/// Tokens of all packed sequences, of which one may have most, or of one of a batch, from which on it
/// may be faster than a window after the other.
constexpr std::int64_t kLeastTokens = 8;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

/// The arguments with gradients of k and v for every query head.
Args of_query_heads(const Problem& problem, const Args& args, const Workspace& workspace) {
  Args own = args;
  if (!shares_heads(problem)) return own;
  const auto planes = [&](float* memory, std::int64_t channels) {
    return TensorView(memory, DType::kF32, {problem.B, problem.T, problem.H, channels},
                      args.q.device);
  };
  own.dk = planes(workspace.dk, problem.K);
  own.dv = planes(workspace.dv, problem.V);
  return own;
}

/// The gradient of what query heads share.
void sum_heads(const Problem& problem, const float* planes, const TensorView& out,
               cudaStream_t stream) {
  launch_plane_sums<float>({.planes = planes,
                            .batches = problem.B,
                            .tokens = problem.T,
                            .heads = problem.H,
                            .columns = out.size(3),
                            .group = problem.H / problem.Hkv,
                            .out = token_view(out)},
                           stream);
}

/// Without those that are left out.
SequencesView walked_sequences(const Problem& problem, const Args& args) {
  SequencesView view = sequences_view(args.cu_seqlens, problem.T);
  view.most_left_out = most_left_out(problem);
  return view;
}

/// Finds the chunks and segments that are walked, if not all are. Chunks that are not have terms of
/// the gradient of gamma, which are zeros.
void list_walked(const Problem& problem, const Args& args, const BackwardConfig& config,
                 const Workspace& workspace, cudaStream_t stream) {
  if (workspace.walked.numbers == nullptr) return;
  const SequencesView sequences = walked_sequences(problem, args);
  launch_walked_list(sequences, problem.N, workspace.walked, kTokens, stream);
  if (has_states(problem)) {
    launch_walked_list(sequences, problem.N, workspace.walked_segments,
                       segment_tokens_of(problem, config), stream);
  }
  if (!args.dgamma) return;
  const std::int64_t terms = parts_of(problem, kTokens) * problem.H;
  check(cudaMemsetAsync(workspace.gamma_terms, 0, static_cast<std::size_t>(terms) * sizeof(float),
                        stream));
}

void sum_gamma(const Problem& problem, const Args& args, const Workspace& workspace,
               cudaStream_t stream) {
  const bool slopes = args.gamma.source == ops::ConstantDecay::Source::kSlopes;
  launch_gamma_gradient({.sequences = sequences_view(args.cu_seqlens, problem.T),
                         .sequence_count = problem.sequences(),
                         .heads = problem.H,
                         .terms = workspace.gamma_terms,
                         .checkpoints = parts_of(problem, kTokens),
                         .interval = kTokens,
                         .out = static_cast<float*>(args.dgamma->data),
                         .sequence_stride = args.dgamma->stride(0),
                         .head_stride = args.dgamma->stride(1),
                         .sign = slopes ? -1.0F : 1.0F},
                        stream);
}

void launch_walks(const BackwardParams& params, cudaStream_t stream) {
  if (params.keys.gates.exist) launch_walk_operands(params, params.keys, stream);
  if (params.values.gates.exist) launch_walk_operands(params, params.values, stream);
  launch_state_walks(params, stream);
  if (params.is_cut) launch_segment_starts(params, stream);
}

void launch_gradients(const BackwardParams& params, cudaStream_t stream) {
  const bool are_gated = params.keys.gates.exist || params.values.gates.exist;
  if (!params.splits_states) {  // a block a chunk, not a panel of it
    return params.values.gates.exist ? launch_value_channel_gradients(params, stream)
           : are_gated               ? launch_channel_gradients(params, stream)
                                     : launch_chunk_gradients(params, stream);
  }
  launch_chunk_scores(params, stream);
  if (are_gated) {
    launch_gated_panel_gradients(params, stream);
    launch_strong_chunks(params, stream);
  } else {
    launch_panel_gradients(params, stream);
  }
  launch_gate_sums(params, stream);
}

/// Of the blocks that make gradients, the most.
std::int64_t shared_bytes(const Problem& problem) {
  const bool are_gated = has_key_gates(problem) || has_value_gates(problem);
  const std::size_t bytes = goes_by_panels(problem)
                                ? panels_shared_bytes(are_gated)
                                : chunk_shared_bytes(problem.K, problem.V, has_key_gates(problem),
                                                     has_value_gates(problem));
  return static_cast<std::int64_t>(bytes);
}

class ChunkMmaBackward : public Kernel<BackwardConfig> {
 public:
  using Config = BackwardConfig;

  std::string_view name() const noexcept override { return "cuda.chunk_mma.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80")) {
      return Support::no(refused::kDevice, "needs sm_80");
    }
    if (problem.K > kMostOfHead || problem.V > kMostOfHead) {
      return Support::no(refused::kShape, str("takes K, V <= ", kMostOfHead));
    }
    if (problem.T < kLeastTokens) {
      return Support::no(refused::kShape, str("takes ", kLeastTokens, " tokens or more"));
    }
    if (problem.T > kMostTokens) {
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    }
    const std::int64_t bytes = shared_bytes(problem);
    if (bytes > device.l1_bytes) {
      return Support::no(
          refused::kMemory,
          str("needs ", bytes, " bytes of shared memory a block, of which there are ",
              device.l1_bytes));
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config best;
    for (const int segments : kSegmentCounts) {
      if (segments > 1 && segments * kTokens > mean_tokens(problem)) break;
      const Config config{segments};
      if (expected_time_us(problem, device, config) < expected_time_us(problem, device, best))
        best = config;
    }
    return best;
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    return expected_time_us(problem, device, heuristic_config(problem, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    const int middle = heuristic_config(problem, device).segments;
    std::vector<Config> configs;
    for (const int segments : {middle, middle / 2, 2 * middle}) {
      const bool is_cut = segments >= 1 && segments <= std::ranges::max(kSegmentCounts) &&
                          segments * kTokens <= mean_tokens(problem);
      if (segments == middle || is_cut) configs.push_back({segments});
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return Workspace(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const Workspace workspace(problem, config, site.workspace.data());
    const Args own = of_query_heads(problem, args, workspace);
    list_walked(problem, args, config, workspace, stream);
    for_each_slice(problem, [&](const KeySlice& slice) {
      const Problem part = slice.of(problem);
      BackwardParams params = params_of(part, slice.of(own), config, workspace);
      params.sequences = walked_sequences(problem, args);
      params.values.adds = slice.first > 0;
      params.adds_gates = params.values.adds;
      params.splits_states = goes_by_panels(problem);
      if (has_states(problem)) launch_walks(params, stream);
      launch_gradients(params, stream);
    });
    if (shares_heads(problem)) {
      sum_heads(problem, workspace.dk, args.dk, stream);
      sum_heads(problem, workspace.dv, args.dv, stream);
    }
    if (const std::int64_t left_out = most_left_out(problem); left_out > 0) {
      pairs::launch_short_gradients(problem, args, left_out,
                                    {.data = args.dgamma ? workspace.gamma_terms : nullptr,
                                     .sequence = problem.H,
                                     .head = 1,
                                     .of_chunks = true},
                                    workspace.of_short, stream);
    }
    if (args.dgamma) sum_gamma(problem, args, workspace, stream);
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_mma::backward

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_mma_backward() {
  using Kernel = chunk_mma::backward::ChunkMmaBackward;
  return std::make_unique<WithRowsBehind<WithChannelSlices<WithCopies<Kernel, WideRows>>>>();
}
