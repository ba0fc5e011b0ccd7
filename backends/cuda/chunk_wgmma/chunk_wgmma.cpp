#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <attune/core/axis_values.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "cuda/chunk_wgmma/walk.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::chunk_wgmma {
namespace {

using Config = ChunkWgmmaConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr int kNarrowest = smallest_value(&Config::tile_v);
/// Coordinates of panels and indices of items are 32-bit integers.
constexpr std::int64_t kMostOfAKind = std::numeric_limits<std::int32_t>::max();
constexpr int kMostSegments = largest_value(&Config::segments);
constexpr int kMostWithCosts = 8;

/// The narrowest tile for all key channels at once. Where there is none, that of slices: the widest
/// with so many value channels, if two of those do.
int tile_k_of(const Problem& problem, int tile_v) {
  constexpr int kWidest = largest_value(&Config::tile_k);
  constexpr int kWidestOfWide = 192;
  if (problem.K <= kWidest) return axis_value_for(&Config::tile_k, problem.K);
  return tile_v > kNarrowest && problem.K <= 2 * kWidestOfWide ? kWidestOfWide : kWidest;
}

/// As many stages as there is an instance for with these tiles; 0 where there is none.
int most_stages(const Config& tiles) {
  int most = 0;
  for (const Config& config : kCompiledConfigs<Config>) {
    if (config.tile_k == tiles.tile_k && config.tile_v == tiles.tile_v) {
      most = std::max(most, config.stages);
    }
  }
  return most;
}

/// All value channels at once share what is made of q and k.
int widest_tile(const Problem& problem) {
  const int wanted = axis_value_for(&Config::tile_v, problem.V);
  const bool exists = most_stages({.tile_k = tile_k_of(problem, wanted), .tile_v = wanted}) > 0;
  return exists ? wanted : kNarrowest;
}

std::int64_t items_of(const Problem& problem, const Config& config) {
  const std::int64_t tiles = (problem.V + config.tile_v - 1) / config.tile_v;
  return problem.sequences() * problem.H * tiles * config.segments;
}

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

/// How long a chunk takes blocks that come in rounds of one a multiprocessor: what it takes a block
/// alone, `alone`, or what memory takes for the round, of which a block asks for `traffic`.
double rounds_of(std::int64_t blocks, const DeviceInfo& device, double alone, double traffic) {
  const std::int64_t rest = blocks % device.cores;
  const double round = std::max(alone, traffic * device.cores);
  const double last = rest == 0 ? 0 : std::max(alone, traffic * static_cast<double>(rest));
  return round * static_cast<double>(blocks / device.cores) + last;
}

/// How long blocks walk so many parts of each sequence: all of them together, or the one that walks
/// most.
double walk_of(const SequenceChunks& chunks, int parts, std::int64_t blocks,
               const DeviceInfo& device, double alone, double traffic) {
  const auto of_part = [&](std::int64_t of_sequence) {
    return static_cast<double>(ceil_div(of_sequence, parts));
  };
  const double together = of_part(chunks.mean) * rounds_of(blocks, device, alone, traffic);
  double sum = 0;
  for (const std::int64_t longest : chunks.longest) {
    sum += std::max(together, of_part(longest) * alone);
  }
  return sum / static_cast<double>(chunks.longest.size());
}

/// Relative cost of a call, in units of the time that a block alone takes for a chunk with 128
/// value channels. A segment before its turn is walked once more for its state, which then goes
/// through memory. The constants are fitted to 6,000 timings on an H200 with D = 128: of 169
/// problems, what costs least here is within 5 % of the fastest config for 161.
double cost_of(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kHalfTile = 0.75;     // a chunk with 64 value channels
  constexpr double kTraffic = 0.0129;    // 78 blocks take all that memory gives
  constexpr double kBeginAndEnd = 3;     // of an item
  constexpr double kFirstWalk = 0.55;    // against a second one
  constexpr double kFirstTraffic = 0.5;  // no q, no o
  constexpr double kLaunch = 4;          // of the first walk
  constexpr double kStateTraffic = 0.015;
  const double width = config.tile_v / 128.0;
  const double alone = width < 1 ? kHalfTile : 1;
  const SequenceChunks chunks(problem);
  const std::int64_t items = items_of(problem, config);
  const double walk = walk_of(chunks, config.segments, items, device, alone, kTraffic * width) +
                      kBeginAndEnd * std::ceil(static_cast<double>(items) / device.cores);
  if (config.segments == 1) return walk;
  const int subsegments = subsegments_of_segment(walk_extents(problem), config);
  const std::int64_t firsts = items / config.segments * (config.segments - 1) * subsegments;
  const double first_walk = walk_of(chunks, config.segments * subsegments, firsts, device,
                                    kFirstWalk * alone, kFirstTraffic * kTraffic * width);
  return walk + first_walk + kLaunch +
         kStateTraffic * width * static_cast<double>(items * subsegments);
}

class ChunkWgmmaKernel : public Kernel<ChunkWgmmaConfig>,
                         public ops::SummarisingWalk<ops::RecurrentAttention> {
 public:
  using Config = ChunkWgmmaConfig;
  using Problem = ops::RecurrentAttentionProblem;  // both bases have one
  using Args = ops::RecurrentAttentionArgs;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    return problem.aligned && problem.layout != ops::Layout::kStrided;
  }
  static bool takes_rows(const Problem& problem, const Args& args) {
    return problem.aligned && has_tensor_maps(args);
  }

  /// Whether the last launch of a call writes no outputs of single tokens on a pool, and waits for
  /// all before it (with_stored_states.hpp). Slices of K add up all outputs, and so do copies.
  static bool leaves_single_tokens(const Problem& problem, const Config& config) {
    return takes_rows(problem) && problem.K <= config.tile_k;
  }

  std::string_view name() const noexcept override { return "cuda.chunk_wgmma"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a GPU");
    if (!device.has("sm_90a"))
      return Support::no(refused::kDevice, "needs wgmma (compute capability 9.0)");
    if (p.dtype == DType::kF32) return Support::no(refused::kDType, "f32: its operands are 16-bit");
    if (p.K > kMostSlicedKeys) {
      return Support::no(refused::kShape, str("K=", p.K, ": at most ", kMostSlicedKeys));
    }
    if (!p.aligned)
      return Support::no(refused::kAlignment, "rows that do not start at multiples of 16 bytes");
    if (p.layout == ops::Layout::kStrided) {
      return Support::no(refused::kLayout, "strided rows: strides of 0 or less have no tensor map");
    }
    if (p.reverse && p.snapshot_every > 0) {
      return Support::no(refused::kShape, "snapshots of a reversed walk lie within its chunks");
    }
    if (p.B == 0 || p.T == 0) return Support::no(refused::kShape, "no tokens");
    const std::int64_t most = items_of(p, {.tile_v = kNarrowest, .segments = kMostSegments});
    if (std::max({p.T, p.B, p.H, most}) > kMostOfAKind)
      return Support::no(refused::kShape, "over 2^31 of a kind");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    const int tile_k = tile_k_of(problem, config.tile_v);
    if (config.tile_k == tile_k) return Support::yes();
    return Support::no(refused::kConfig,
                       str("tile_k=", config.tile_k, ": K=", problem.K, " takes ", tile_k));
  }

  Config heuristic_config(const Problem& called, const DeviceInfo& device) const override {
    const Problem problem = chosen_for(called);
    Config best = tiles_for(problem, widest_tile(problem));
    for (int tile_v = best.tile_v; tile_v >= kNarrowest; tile_v /= 2) {
      Config config = tiles_for(problem, tile_v);
      const int most = problem.N > 1 ? kMostSegments : kMostWithCosts;
      for (config.segments = 1; config.segments <= most; config.segments *= 2) {
        if (config.segments > 1 && !may_be_cut(problem, config)) break;
        if (cost_of(problem, device, config) < cost_of(problem, device, best)) best = config;
      }
    }
    return more_segments(problem, device, best);
  }

  /// Both tiles over V, all that a state fits into, with the segments that the heads leave room
  /// for.
  std::vector<Config> candidate_configs(const Problem& called,
                                        const DeviceInfo& device) const override {
    constexpr std::int64_t kMostRounds = 4;
    const Problem problem = chosen_for(called);
    std::vector<Config> configs;
    for (Config config : all_configs<Config>()) {
      if (!fits(problem, device, config)) continue;
      if (config.tile_v > kNarrowest && problem.V <= kNarrowest) continue;
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
                               std::span<std::byte> workspace) {
      const Config own = tiles_of_slice(slice, config);
      WalkParams params = forward_walk(slice, of_slice, own, workspace);
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
  /// The last slice may do with narrower tiles.
  static Config tiles_of_slice(const Problem& slice, Config config) {
    const int tile_k = tile_k_of(slice, config.tile_v);
    if (tile_k == config.tile_k) return config;
    config.tile_k = tile_k;
    config.stages = most_stages(config);
    return config;
  }
  static Config tiles_for(const Problem& problem, int tile_v) {
    Config config{.tile_k = tile_k_of(problem, tile_v), .tile_v = tile_v};
    config.stages = most_stages(config);
    return config;
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
