#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/gamma_gradient.hpp"
#include "cuda/chunks/group_sums.hpp"
#include "cuda/chunks/rows_behind.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/chunks/with_channel_slices.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/gla/expected_time.hpp"
#include "cuda/gla/params.hpp"
#include "cuda/kernels.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::gla {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

// Their tokens are counted in 31 bits by tensor maps.
constexpr std::int64_t kMostChunks = std::int64_t{1} << 25;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 29;

using Config = GlaBackwardConfig;

SegmentedWalks segmented_walks(const Problem& problem) {
  static constexpr int kOfKeys[] = {2, 1};    // S and D^T, then D
  static constexpr int kOfValues[] = {3, 1};  // S, D^T and S^T, then D
  static constexpr int kOfBoth[] = {2, 2};    // S, then D
  const bool both = keys_have_gates(problem) && values_have_gates(problem);
  const GlaParams side = side_of(problem, {}, false);
  SegmentedWalks walks{.count = problem.sequences() * problem.H * side.own_tiles * side.other_tiles,
                       .launches = kOfKeys,
                       .chunks = SequenceChunks(side.by_parts() ? as_batch(problem) : problem),
                       .most_passed = kMostPassedSegments};
  if (!keys_have_gates(problem)) walks.launches = kOfValues;
  if (both) walks.launches = kOfBoth;
  return walks;
}

/// Of the elements of a state's tiles, those that it has.
double share_of_tiles(const Problem& problem, const GlaParams& side) {
  const std::int64_t elements =
      std::int64_t{side.own_tiles} * side.other_tiles * side.tile_channels * side.tile_channels;
  return static_cast<double>(problem.K * problem.V) / static_cast<double>(elements);
}

GroupSumParams sum_of_group(const void* partials, const Problem& problem, const TensorView& out) {
  return {.partials = partials,
          .rows = problem.B * problem.T,
          .tokens = problem.T,
          .heads = problem.Hkv,
          .group = problem.H / problem.Hkv,
          .columns = padded_channels(out.size(3)),
          .out = token_view(out)};
}

/// Finds the chunks that are walked, if not all are, of whose terms of the gradient of gamma the
/// others' are zeros.
void list_walked(const GlaParams& p, cudaStream_t stream) {
  if (p.walked_chunks.numbers == nullptr) return;
  if (p.dgamma_terms != nullptr) {
    const std::int64_t terms = p.slots * p.heads;
    check(cudaMemsetAsync(p.dgamma_terms, 0, static_cast<std::size_t>(terms) * sizeof(float),
                          stream));
  }
  launch_walked_list(p.sequences, p.sequence_count, p.walked_chunks, kChunkTokens, stream);
}

template <class T>
void run_as(const Problem& problem, const Args& args, const Config& config,
            const LaunchSite& site) {
  const GatedSides sides = gated_sides(problem, args, config, site.workspace.data());
  auto* const stream = static_cast<cudaStream_t>(site.stream);
  const GlaParams& first = sides.first;
  launch_part_places(first.sequences, problem.N, first.parts, stream);
  list_walked(first, stream);
  if (sides.both) {
    launch_gate_shifts<T>(sides.second, problem.B * problem.T, const_cast<float*>(first.gate_shift),
                          stream);
    launch_prepare<T>(sides.second, stream);
  }
  launch_prepare<T>(first, stream);
  if (sides.both) {
    launch_state_walks_of_both<T>(first, sides.second, stream);
    launch_intra_chunk_of_both<T>(first, sides.second, stream);
  } else {
    launch_state_walks<T>(first, stream);
    launch_intra_chunk<T>(first, stream);
    if (first.dgamma_terms != nullptr && has_few_constant_decays(problem)) {
      launch_gamma_terms<T>(first, stream);
    }
  }
  if (first.heads_per_kv > 1) {
    const TensorView& dy = sides.first_of_values ? args.dv : args.dk;
    const TensorView& dz = sides.first_of_values ? args.dk : args.dv;
    const GroupSumParams sums[] = {sum_of_group(first.dy_partials, problem, dy),
                                   sum_of_group(first.dz_partials, problem, dz)};
    launch_group_sums<T>(sums, stream);
  }
  if (sides.of_short != nullptr) {
    pairs::launch_short_gradients(
        problem, args, first.sequences.most_left_out,
        {.data = first.dgamma_terms, .sequence = 1, .head = first.slots, .of_chunks = true},
        sides.of_short, stream);
  }
  if (first.dgamma.data != nullptr) {
    launch_sum_of_chunks({.terms = first.dgamma_terms,
                          .out = first.dgamma,
                          .sign = first.dgamma_sign,
                          .heads = first.heads,
                          .sequences = first.sequences,
                          .sequence_count = first.sequence_count},
                         first.slots, first.gamma_parts, stream);
  }
}

class GlaBackwardKernel : public Kernel<GlaBackwardConfig> {
 public:
  using Config = GlaBackwardConfig;

  /// What it takes without copies (with_padded_rows.hpp). Gates it takes as they lie.
  static bool takes_rows(const Problem& problem) {
    return has_whole_rows(problem) && problem.layout != ops::Layout::kStrided;
  }
  static bool takes_rows(const Problem& problem, const Args& args) {
    return has_whole_rows(problem) && has_tensor_maps(args);
  }

  std::string_view name() const noexcept override { return "cuda.gla.backward"; }
  int version() const noexcept override { return 4; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_90a")) {
      return Support::no(refused::kDevice, "needs a GPU with sm_90a code");
    }
    if (p.dtype == DType::kF32) return Support::no(refused::kDType, "takes f16 and bf16 only");
    if (!keys_have_gates(p) && !values_have_gates(p))
      return Support::no(refused::kFeature, "takes gk, gv or both");
    if (!p.d_o) return Support::no(refused::kFeature, "needs the gradient of o");
    if (!has_whole_rows(p)) {
      return Support::no(refused::kAlignment, "needs rows aligned to 16 bytes");
    }
    if (p.K > kMostChannels || p.V > kMostChannels)
      return Support::no(refused::kShape, "takes K, V up to 512");
    if (const Support even = evens_out_roundings(p); !even) return even;
    if (has_few_constant_decays(p) && keys_have_gates(p) && values_have_gates(p)) {
      return Support::no(refused::kShape, "takes three constant decays or more with gk and gv");
    }
    if (p.B * p.T > kMostTokens || chunk_slots(p) * p.H >= kMostChunks) {
      return Support::no(refused::kShape, "takes up to 2^30 tokens and 2^25 chunks x heads");
    }
    return GlaBackwardKernel::fits(p, device, Config{});
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    if (segmented_walks(problem).count * config.segments > kMostBlocks) {
      return Support::no(refused::kShape, "takes up to 2^29 sequences x heads x segments x tiles");
    }
    return Support::yes();
  }

  /// Fitted to every number of segments of 61 batches on an H200. Of 213 problems, most of them drawn
  /// since, what costs least here takes 1.014 of the fastest in geometric mean, and ten are over 1.1.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    constexpr WalkTimes kTimes{.chunk = 0.832,
                               .sum = 0.313,
                               .round = 1.14,
                               .sums = 4.76,
                               .pass = 0.668,
                               .state = 0.125,
                               .traffic = 0.0339,
                               .sum_traffic = 0.00841};
    const GlaParams side = side_of(problem, {}, false);
    WalkTimes times = side.tile_channels == kSmallTile ? kTimes.of_small_tiles() : kTimes;
    // Channels that pad a tile move nothing; the root of the share of others fits best.
    const double filled = std::sqrt(share_of_tiles(problem, side));
    times.traffic *= filled;
    times.sum_traffic *= filled;
    return cheapest_segments<Config>(segmented_walks(problem), times, device);
  }

  /// Of short sequences.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (!has_short_sequences(problem)) return std::nullopt;
    return short_us(problem, device, heuristic_config(problem, device));
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
    return GatedSides(problem, config, nullptr).workspace_bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    with_element<__half, __nv_bfloat16>(problem.dtype,
                                        [&]<class T>() { run_as<T>(problem, args, config, site); });
  }
};

}  // namespace
}  // namespace attune::cuda::gla

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_gla_backward() {
  return std::make_unique<
      WithRowsBehind<WithChannelSlices<WithPaddedRows<gla::GlaBackwardKernel>>>>();
}

}  // namespace attune::cuda
