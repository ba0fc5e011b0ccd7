#include "cuda/chunk_wgmma/chunk_wgmma.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/chunk_wgmma/walk.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda {
namespace {

using Config = ChunkWgmmaConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr std::int64_t kMostK = 256;
/// Coordinates of boxes and indices of items are 32-bit integers.
constexpr std::int64_t kMostOfAKind = std::numeric_limits<std::int32_t>::max();
constexpr int kMostSegments = 8;

int tile_k_of(const Problem& problem) {
  return problem.K <= 64 ? 64 : problem.K <= 128 ? 128 : 256;
}

/// All 128 value channels at once share what is made of q and k. A wider state than 256 x 64 does
/// not fit into the registers.
int widest_tile(const Problem& problem) { return problem.V > 64 && problem.K <= 128 ? 128 : 64; }

std::int64_t items_of(const Problem& problem, const Config& config) {
  const std::int64_t tiles = (problem.V + config.tile_v - 1) / config.tile_v;
  return problem.sequences() * problem.H * tiles * config.segments;
}

int most_stages(const Config& tiles) {
  Config config = tiles;
  config.stages = 4;
  while (!Config::compiles(config)) --config.stages;
  return config.stages;
}

std::int64_t chunks_of(const Problem& problem) { return walk_extents(problem).chunks; }

/// How long a chunk takes blocks that come in rounds of one a multiprocessor: what it takes a block
/// alone, `alone`, or what memory takes for the round, of which a block asks for `traffic`.
double rounds_of(std::int64_t blocks, const DeviceInfo& device, double alone, double traffic) {
  const std::int64_t rest = blocks % device.cores;
  const double round = std::max(alone, traffic * device.cores);
  const double last = rest == 0 ? 0 : std::max(alone, traffic * static_cast<double>(rest));
  return round * static_cast<double>(blocks / device.cores) + last;
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
  const double chunks = std::ceil(static_cast<double>(chunks_of(problem)) / config.segments);
  const std::int64_t items = items_of(problem, config);
  const double walk = chunks * rounds_of(items, device, alone, kTraffic * width) +
                      kBeginAndEnd * std::ceil(static_cast<double>(items) / device.cores);
  if (config.segments == 1) return walk;
  const int parts = segment_parts(walk_extents(problem), config);
  const std::int64_t firsts = items / config.segments * (config.segments - 1) * parts;
  const double first_walk =
      std::ceil(chunks / parts) *
      rounds_of(firsts, device, kFirstWalk * alone, kFirstTraffic * kTraffic * width);
  return walk + first_walk + kLaunch + kStateTraffic * width * static_cast<double>(items * parts);
}

class ChunkWgmmaKernel final : public Kernel<Config> {
 public:
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
    if (p.K > kMostK) return Support::no(refused::kShape, str("K=", p.K, ": at most ", kMostK));
    if (!p.aligned)
      return Support::no(refused::kAlignment, "rows that do not start at multiples of 16 bytes");
    if (p.layout == ops::Layout::kStrided) {
      return Support::no(refused::kLayout, "strided rows: strides of 0 or less have no tensor map");
    }
    if (p.B == 0 || p.T == 0) return Support::no(refused::kShape, "no tokens");
    const std::int64_t most = items_of(p, {.tile_v = 64, .segments = kMostSegments});
    if (std::max({p.T, p.B, p.H, most}) > kMostOfAKind)
      return Support::no(refused::kShape, "over 2^31 of a kind");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    if (config.tile_k == tile_k_of(problem)) return Support::yes();
    return Support::no(refused::kConfig, str("tile_k=", config.tile_k, ": K=", problem.K, " takes ",
                                             tile_k_of(problem)));
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config best = tiles_for(problem, widest_tile(problem));
    for (int tile_v = best.tile_v; tile_v >= 64; tile_v /= 2) {
      Config config = tiles_for(problem, tile_v);
      for (config.segments = 1; config.segments <= kMostSegments; config.segments *= 2) {
        if (config.segments > 1 && config.segments > chunks_of(problem)) break;
        if (cost_of(problem, device, config) < cost_of(problem, device, best)) best = config;
      }
    }
    return best;
  }

  /// Both tiles over V, all that a state fits into, with the segments that the heads leave room
  /// for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    constexpr std::int64_t kMostRounds = 4;
    std::vector<Config> configs;
    for (Config config : all_configs<Config>()) {
      if (!fits(problem, device, config)) continue;
      if (config.tile_v > 64 && problem.V <= 64) continue;
      if (config.segments > 1 && (config.segments > chunks_of(problem) ||
                                  items_of(problem, config) > kMostRounds * device.cores)) {
        continue;
      }
      configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return segment_scratch_bytes(walk_extents(problem), config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const WalkParams params = forward_walk(problem, args, config, site.workspace);
    if (problem.dtype == DType::kBF16) {
      launch_all<__nv_bfloat16>(config, params, site);
    } else {
      launch_all<__half>(config, params, site);
    }
  }

 private:
  static Config tiles_for(const Problem& problem, int tile_v) {
    Config config{.tile_k = tile_k_of(problem), .tile_v = tile_v};
    config.stages = most_stages(config);
    return config;
  }

  template <class T>
  static void launch_all(const Config& config, const WalkParams& params, const LaunchSite& site) {
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (config.segments > 1) launch_segment_states<T>(config, params, stream);
    launch_walk<T>(config, params, stream);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_wgmma() {
  return std::make_unique<ChunkWgmmaKernel>();
}

}  // namespace attune::cuda
