#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <attune/ops/summarising_walk.hpp>

#include "cuda/chunk_wgmma/backward/expected_time.hpp"
#include "cuda/chunk_wgmma/backward/params.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/chunks/group_sums.hpp"
#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/rows_behind.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/chunks/with_channel_slices.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/kernels.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/tiles/tensor_map.hpp"

namespace attune::cuda::chunk_wgmma::backward {
namespace {

using Config = BackwardConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr std::int64_t kLargestHead = 512;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

CUtensorMap map_of(const ConstTensorView& tensor) {
  return tensor.empty() ? CUtensorMap{} : head_map(tensor, kChunkTokens);
}

void set_tensors(BackwardParams& params, const Args& args) {
  params.q = map_of(args.q);
  params.k = map_of(args.k);
  params.v = map_of(args.v);
  params.d_o = map_of(*args.d_o);
  params.g = gate_view(args.g);
  params.initial_state = state_view(args.initial_state);
  params.dfinal_state = state_view(args.dfinal_state);
  params.dinitial_state = state_view(args.dinitial_state);
  if (args.dgamma) {
    params.dgamma = {static_cast<float*>(args.dgamma->data), args.dgamma->stride(0),
                     args.dgamma->stride(1)};
  }
}

/// Where the walks write an output: to the caller's tensor, or the partial sums of several to the
/// workspace, each as a head of its own, in rows of whole 16 bytes.
TensorView target_of(const TensorView& out, void* partials, std::int64_t heads) {
  if (partials == nullptr) return out;
  return TensorView(partials, out.dtype,
                    {out.size(0), out.size(1), heads, padded_channels(out.size(3))}, out.device);
}

void set_outputs(BackwardParams& params, const Args& args) {
  const std::int64_t key_partials = params.heads * params.value_tiles;
  const TensorView dq = target_of(args.dq, params.dq_partials, key_partials);
  const TensorView dk = target_of(args.dk, params.dk_partials, key_partials);
  const TensorView dv = target_of(args.dv, params.dv_partials, params.heads * params.key_tiles);
  params.dq = map_of(dq);
  params.dk = map_of(dk);
  params.dv = map_of(dv);
  params.dq_rows = token_view(dq);
  params.dk_rows = token_view(dk);
  params.dv_rows = token_view(dv);
  params.dg = token_view(args.dg);
  if (params.dg_partials != nullptr && args.dg) {
    const std::int64_t owners = params.heads * params.tiles();
    params.dg = {params.dg_partials, args.dg->size(1) * owners, owners, 1};
  }
}

BackwardShape shape_of(const Problem& problem, const Args& args) {
  return backward::shape_of(problem, args.dg || args.dgamma);
}

/// Parts of dk and dv are partial sums, or added up where an instance does that.
void choose_parts(BackwardParams& params, const BackwardShape& shape) {
  if (!adds_parts(shape)) {
    params.stored.dk = params.stored.dv = nullptr;
  }
  if (params.stored.dk != nullptr) params.dk_partials = nullptr;
  if (params.stored.dv != nullptr) params.dv_partials = nullptr;
}

/// Which packed sequences are left to pairs of tokens, and how the others are cut, if none is.
void cut(BackwardParams& params, const Problem& problem, const Config& config) {
  params.sequences.most_left_out = most_left_out(problem, config);
  if (params.sequences.most_left_out == 0) params.parts = parts_of(problem, config);
}

/// `sums_all`: summaries are wanted, of all sequences.
BackwardParams params_of(const Problem& problem, const Args& args, const Config& config,
                         const LaunchSite& site, bool sums_all) {
  BackwardParams params;
  params.sums_all = sums_all;
  set_tensors(params, args);
  params.gamma = decay_view(args.gamma, problem.H);
  if (args.gamma.source == ops::ConstantDecay::Source::kSlopes) params.dgamma_sign = -1.0F;
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  if (!sums_all) cut(params, problem, config);
  params.heads = problem.H;
  params.heads_per_kv = static_cast<int>(problem.H / problem.Hkv);
  params.key_dim = static_cast<int>(problem.K);
  params.value_dim = static_cast<int>(problem.V);
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  place_workspace(params, problem, config, site.workspace.data());
  choose_parts(params, shape_of(problem, args));
  set_outputs(params, args);
  return params;
}

/// Of the outputs of which walks leave partial sums.
template <class T>
void sum_partials(const BackwardParams& params, const Args& args, cudaStream_t stream) {
  GroupSumParams sums[kMostGroupSums];
  std::size_t count = 0;
  const auto add = [&](const void* partials, std::int64_t tiles, const TensorView& out) {
    if (partials == nullptr) return;
    sums[count++] = {.partials = partials,
                     .rows = out.size(0) * out.size(1),
                     .tokens = out.size(1),
                     .heads = out.size(2),
                     .group = params.heads * tiles / out.size(2),
                     .columns = padded_channels(out.size(3)),
                     .out = token_view(out)};
  };
  add(params.dq_partials, params.value_tiles, args.dq);
  add(params.dk_partials, params.value_tiles, args.dk);
  add(params.dv_partials, params.key_tiles, args.dv);
  launch_group_sums<T>({sums, count}, stream);
}

void sum_gate_partials(const BackwardParams& params, const TensorView& dg, cudaStream_t stream) {
  launch_plane_sums<float>({.planes = params.dg_partials,
                            .batches = dg.size(0),
                            .tokens = dg.size(1),
                            .heads = params.heads * params.tiles(),
                            .columns = 1,
                            .group = params.tiles(),
                            .out = token_view(dg)},
                           stream);
}

/// Everything behind the sums of segments.
template <class T>
void walk_behind_sums(const Problem& problem, const Args& args, const BackwardParams& params,
                      const LaunchSite& site) {
  const BackwardShape shape = shape_of(problem, args);
  auto* const stream = static_cast<cudaStream_t>(site.stream);
  if (params.stored.bytes > 0)
    check(cudaMemsetAsync(params.stored.all, 0, params.stored.bytes, stream));
  if (params.by_parts() && args.dgamma) {  // not all numbers of parts are in use
    const auto bytes = static_cast<std::size_t>(params.walks) * sizeof(float);
    check(cudaMemsetAsync(params.dgamma_terms, 0, bytes, stream));
  }
  launch_segment_starts(params, shape, stream);
  const bool leaves_out = params.sequences.most_left_out > 0;
  launch_walked_list(params.sequences, problem.sequences(), params.walked, 0, stream);
  launch_dq_walk<T>(params, shape, stream);
  launch_dkdv_walk<T>(params, shape, stream);
  sum_partials<T>(params, args, stream);
  if (params.dg_partials != nullptr && args.dg) sum_gate_partials(params, *args.dg, stream);
  const int terms = params.tiles() * params.segments;  // of dgamma, of a sequence and head
  if (leaves_out) {
    pairs::launch_short_gradients(problem, args, params.sequences.most_left_out,
                                  {.data = args.dgamma ? params.dgamma_terms : nullptr,
                                   .sequence = params.heads * terms,
                                   .head = terms,
                                   .terms = terms},
                                  params.of_short, stream);
  }
  if (!args.dgamma) return;
  const GammaGradient sums{.terms = params.dgamma_terms,
                           .out = params.dgamma,
                           .sign = params.dgamma_sign,
                           .heads = params.heads,
                           .sequences = params.sequences,
                           .sequence_count = problem.sequences()};
  if (params.by_parts()) {
    launch_sum_of_parts(sums, params.parts, params.tiles(), terms, stream);
  } else {
    launch_sum_of_walks(sums, terms, stream);
  }
}

class BackwardKernel : public Kernel<BackwardConfig>,
                       public ops::SummarisingWalk<ops::RecurrentAttentionBackward> {
 public:
  using Config = BackwardConfig;
  using Problem = ops::RecurrentAttentionProblem;  // both bases have one
  using Args = ops::RecurrentAttentionBackwardArgs;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    return has_whole_rows(problem) && problem.layout != ops::Layout::kStrided;
  }
  static bool takes_rows(const Problem& problem, const Args& args) {
    return has_whole_rows(problem) && has_tensor_maps(args);
  }

  std::string_view name() const noexcept override { return "cuda.chunk_wgmma.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_90a")) {
      return Support::no(refused::kDevice, "needs a GPU with sm_90a code");
    }
    if (p.dtype == DType::kF32) return Support::no(refused::kDType, "takes f16 and bf16 only");
    if (!p.d_o) return Support::no(refused::kFeature, "needs the gradient of o");
    if (!has_whole_rows(p)) {
      return Support::no(refused::kAlignment, "needs rows aligned to 16 bytes");
    }
    if (p.K > kLargestHead || p.V > kLargestHead)
      return Support::no(refused::kShape, "takes K, V up to 512");
    if (p.T > kMostTokens || walks_of(p) > kMostBlocks) {
      return Support::no(refused::kShape, "takes up to 2^30 tokens, and as many sequences x heads");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    if (walks_of(problem) * config.segments > kMostBlocks) {
      return Support::no(refused::kShape, "takes up to 2^30 sequences x heads x segments");
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return cheapest_config(problem, device);
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (!has_short_sequences(problem)) return std::nullopt;
    return short_call_us(problem, device);
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& c) {
      return too_many_segments(segmented_walks(problem), c.segments, device);
    });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    BackwardParams unplaced;
    cut(unplaced, problem, config);
    return place_workspace(unplaced, problem, config, nullptr);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const BackwardParams params = params_of(problem, args, config, site, false);
    with_element<__half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      launch_part_places(params.sequences, problem.N, params.parts, stream);
      if (params.is_cut()) launch_segment_sums<T>(params, shape_of(problem, args), stream);
      walk_behind_sums<T>(problem, args, params, site);
    });
  }

  bool summarises(const Problem& problem, const ConfigBlob&) const override {
    return takes_rows(problem) && problem.K <= kLargestHead && problem.V <= kLargestHead;
  }
  std::size_t summarising_bytes(const Problem& problem, const ConfigBlob& config) const override {
    BackwardParams unplaced;
    unplaced.sums_all = true;
    return place_workspace(unplaced, problem, unpack(config), nullptr);
  }
  void summarise(const Problem& problem, const Args& args, const ops::SummaryOutputs& to,
                 const ConfigBlob& config, const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const BackwardShape shape = shape_of(problem, args);
    const BackwardParams params = params_of(problem, args, unpack(config), site, true);
    with_element<__half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_segment_sums<T>(params, shape, stream); });
    launch_segment_join(params, shape, summary_views(to), stream);
  }
  void walk_on(const Problem& problem, const Args& args, const ConfigBlob& config,
               const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const BackwardParams params = params_of(problem, args, unpack(config), site, true);
    with_element<__half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { walk_behind_sums<T>(problem, args, params, site); });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_wgmma::backward

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_chunk_backward() {
  return std::make_unique<
      WithRowsBehind<WithChannelSlices<WithPaddedRows<chunk_wgmma::backward::BackwardKernel>>>>();
}

}  // namespace attune::cuda
