#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>
#include <optional>

#include <attune/core/axis_values.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "cuda/chunk_wgmma/costs.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/wgmma_walk/forward_kernel.hpp"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::chunk_wgmma {
namespace {

/// Coordinates of panels and indices of items are 32-bit integers.
constexpr std::int64_t kMostOfAKind = std::numeric_limits<std::int32_t>::max();
constexpr int kMostSegments = largest_value(&Config::segments);
constexpr int kMostWithCosts = 8;

std::int64_t chunks_of_sequence(const Problem& problem) { return walk_extents(problem).chunks; }

/// Whether packed sequences are cut by their own lengths.
bool is_in_parts(const Problem& problem, const Config& config) {
  return parts_of(problem, config).tokens > 0;
}

/// What a config is chosen for, where packed sequences may be cut by their own lengths.
Problem chosen_for(const Problem& problem) {
  return problem.pool || problem.snapshot_every > 0 ? problem : as_batch(problem);
}

/// Scratch memory of a slice of the key channels.
std::size_t scratch_bytes(const Problem& slice, const Config& config) {
  if (is_in_parts(slice, config)) return parts_scratch_bytes(slice, config);
  return config.segments > 1 ? segment_scratch_bytes(walk_extents(slice), config) : 0;
}

/// Whether the longest sequence may have as many chunks as segments, and the states of packed ones,
/// most of which may have fewer, take no more memory than all rows.
bool may_be_cut(const Problem& problem, const Config& config) {
  if (config.segments > SequenceChunks(problem).most()) return false;
  if (problem.N <= 1) return true;
  const std::int64_t of_states = items_of(problem, config) * config.tile_k * config.tile_v *
                                 static_cast<std::int64_t>(sizeof(float));
  const std::int64_t of_rows = 4 * problem.T * problem.H * (problem.K + problem.V);  // of 16 bits
  return of_states <= of_rows;
}

class ChunkWgmmaKernel : public ForwardKernel<ChunkWgmmaConfig>,
                         public ops::SummarisingWalk<ops::RecurrentAttention> {
 public:
  using Problem = ops::RecurrentAttentionProblem;  // both bases have one
  using Args = ops::RecurrentAttentionArgs;

  /// Whether the last launch of a call writes no outputs of single tokens on a pool, and waits for
  /// all before it (with_stored_states.hpp). Slices of K add up all outputs, and so do copies.
  static bool leaves_single_tokens(const Problem& problem, const Config& config) {
    return takes_rows(problem) && problem.K <= config.tile_k;
  }

  std::string_view name() const noexcept override { return "cuda.chunk_wgmma"; }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (const Support taken = takes(p, device, kMostSlicedKeys); !taken) return taken;
    if (p.reverse && p.snapshot_every > 0) {
      return Support::no(refused::kShape, "snapshots of a reversed walk lie within its chunks");
    }
    const std::int64_t most = items_of(p, {.tile_v = kNarrowest, .segments = kMostSegments});
    if (std::max({p.T, p.B, p.H, most}) > kMostOfAKind)
      return Support::no(refused::kShape, "over 2^31 of a kind");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    const int tile_k = tile_k_of(problem, config.tile_v);
    if (config.tile_k != tile_k) {
      return Support::no(refused::kConfig,
                         str("tile_k=", config.tile_k, ": K=", problem.K, " takes ", tile_k));
    }
    if (config.is_widest() && problem.snapshot_every > 0) {
      return Support::no(refused::kConfig, str("tile_k=", tile_k, ", tile_v=", config.tile_v,
                                               ": snapshots take tile_v=", kNarrowest));
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& called, const DeviceInfo& device) const override {
    const Problem problem = chosen_for(called);
    Config best = tiles_for(problem, kNarrowest);
    // All value channels at once share what is made of q and k.
    for (int tile_v = axis_value_for(&Config::tile_v, problem.V); tile_v >= kNarrowest;
         tile_v /= 2) {
      Config config = tiles_for(problem, tile_v);
      const int most = problem.N > 1 ? kMostSegments : kMostWithCosts;
      for (config.segments = 1; config.segments <= most; config.segments *= 2) {
        if (config.segments > 1 && !may_be_cut(problem, config)) break;
        if (!fits(called, device, config)) break;
        if (cost_of(problem, device, config) < cost_of(problem, device, best)) best = config;
      }
    }
    return more_segments(problem, device, best);
  }

  /// Of sequences of more than a chunk, where few blocks of cuda.chunk_mma may be sooner done, and of slices
  /// of shorter ones; else it comes first, but behind kernels of short sequences.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const bool has_slices = problem.K > largest_value(&Config::tile_k);
    if (problem.pool || (has_short_sequences(problem) && !has_slices)) return std::nullopt;
    return walks_us(problem, device);
  }
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    return config_us(problem, device, heuristic_config(problem, device));
  }

  /// Both tiles over V, all that a state fits into, with the segments that the heads leave room
  /// for.
  std::vector<Config> candidate_configs(const Problem& called,
                                        const DeviceInfo& device) const override {
    constexpr std::int64_t kMostRounds = 4;
    const Problem problem = chosen_for(called);
    std::vector<Config> configs;
    for (Config config : all_configs<Config>()) {
      if (!fits(called, device, config)) continue;
      if (config.tile_v > kNarrowest && problem.V <= kNarrowest) continue;
      if (!config.is_instance()) continue;
      const std::int64_t most_items = (problem.N > 1 ? kMostSegments : kMostRounds) * device.cores;
      if (config.segments > 1 &&
          (!may_be_cut(problem, config) || items_of(problem, config) > most_items)) {
        continue;
      }
      configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return key_slices_bytes(problem, config.tile_k) +
           scratch_bytes(first_slice(problem, config), config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto run_slice = [&](const Problem& slice, const Args& of_slice,
                               std::span<std::byte> workspace, std::int64_t first) {
      // Later ones write where the one before is added from.
      const bool is_second = first == config.tile_k;
      const bool all_at_once = is_second && runs_at_once(problem, config);
      const Config own = all_at_once ? config : tiles_of_slice(slice, config);
      WalkParams params = forward_walk(slice, of_slice, own, workspace);
      params.runs_beside_previous = is_second && own.segments == 1 && !is_in_parts(slice, own);
      if (is_in_parts(slice, own)) {
        cut_into_parts(params, slice, own, workspace, static_cast<cudaStream_t>(site.stream));
      }
      with_element<__half, __nv_bfloat16>(problem.dtype,
                                          [&]<class T>() { launch_all<T>(own, params, site); });
    };
    run_key_slices(problem, args, config.tile_k, site.workspace,
                   static_cast<cudaStream_t>(site.stream), run_slice);
  }

  bool summarises(const Problem& problem, const ConfigBlob& blob) const override {
    return problem.K <= unpack(blob).tile_k && takes_rows(problem) && !problem.pool &&
           problem.state_dtype == DType::kF32;
  }
  std::size_t summarising_bytes(const Problem& problem, const ConfigBlob& blob) const override {
    return segment_scratch_bytes(walk_extents(problem), unpack(blob));
  }
  void summarise(const Problem& problem, const Args& args, const ops::SummaryOutputs& to,
                 const ConfigBlob& blob, const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    const Config config = unpack(blob);
    const WalkParams params = summed_walk(problem, args, config, site);
    with_element<__half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_segment_states<T>(config, params, stream); });
    launch_segment_join(config, params, summary_views(to), stream);
  }
  void walk_on(const Problem& problem, const Args& args, const ConfigBlob& blob,
               const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const Config config = unpack(blob);
    const WalkParams params = summed_walk(problem, args, config, site);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (config.segments > 1) launch_initial_states(config, params, stream);
    with_element<__half, __nv_bfloat16>(problem.dtype,
                                        [&]<class T>() { launch_walk<T>(config, params, stream); });
  }

 private:
  /// Of which all segments are summed up first.
  static WalkParams summed_walk(const Problem& problem, const Args& args, const Config& config,
                                const LaunchSite& site) {
    WalkParams params = forward_walk(problem, args, config, site.workspace);
    params.sequences.most_left_out = 0;  // nobody takes what is left out of a part of a pass
    params.scratch = segment_scratch(site.workspace, params.extents, config);
    params.scratch.sums_all = true;
    return params;
  }

  /// Costs were fitted to no more segments than kMostWithCosts. Further ones pay as long as each
  /// has a multiprocessor and a few chunks.
  static Config more_segments(const Problem& problem, const DeviceInfo& device, Config config) {
    constexpr std::int64_t kFewestChunks = 4;
    if (config.segments != kMostWithCosts || problem.N > 1) return config;
    for (Config more = config; more.segments < kMostSegments; config = more) {
      more.segments *= 2;
      if (items_of(problem, more) > device.cores ||
          chunks_of_sequence(problem) < kFewestChunks * more.segments) {
        break;
      }
    }
    return config;
  }

  static Problem first_slice(Problem problem, const Config& config) {
    problem.K = std::min<std::int64_t>(problem.K, config.tile_k);
    return problem;
  }
  /// Whether there is a multiprocessor for each block of all slices. Blocks of another instance, with
  /// another size of shared memory, would wait for pairs of multiprocessors that have none of the first
  /// slice's, though these take as long as the widest.
  static bool runs_at_once(const Problem& problem, const Config& config) {
    return config.segments == 1 && !is_in_parts(problem, config) &&
           items_at_once(problem, config) <= multiprocessor_count();
  }
  /// The last slice may do with narrower tiles.
  static Config tiles_of_slice(const Problem& slice, Config config) {
    const int tile_k = tile_k_of(slice, config.tile_v);
    if (tile_k == config.tile_k) return config;
    config.tile_k = tile_k;
    return config.instance();
  }
  static Config tiles_for(const Problem& problem, int tile_v) {
    return Config{.tile_k = tile_k_of(problem, tile_v), .tile_v = tile_v}.instance();
  }

  template <class T>
  static void launch_all(const Config& config, const WalkParams& params, const LaunchSite& site) {
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (config.segments > 1 || params.parts.tokens > 0) {
      launch_segment_states<T>(config, params, stream);
    }
    launch_walk<T>(config, params, stream);
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_wgmma

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_chunk_wgmma() {
  return std::make_unique<WithStoredStates<WithPaddedRows<chunk_wgmma::ChunkWgmmaKernel>>>();
}

}  // namespace attune::cuda
