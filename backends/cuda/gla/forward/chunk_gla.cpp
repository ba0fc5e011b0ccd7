#include <algorithm>
#include <limits>
#include <optional>

#include <attune/core/axis_values.hpp>

#include "cuda/chunks/channels/slices.hpp"
#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/gla/forward/walk.hpp"
#include "cuda/kernels.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/wgmma_walk/forward_kernel.hpp"

namespace attune::cuda::gla::forward {
namespace {

using Config = ChunkGlaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

/// Divides a workspace, or only counts its bytes where there is none.
struct WalkMemory {
  WalkMemory(const Problem& problem, const Config& config, std::byte* memory) {
    constexpr std::int64_t kWord = sizeof(float);
    const std::int64_t heads = problem.sequences() * problem.H;
    const std::int64_t chunks = chunk_slots(problem) * problem.H;
    const std::int64_t tile_bytes = std::int64_t{config.tile_k} / kPanelChannels * kPanelBytes;
    WorkspaceParts parts(memory);
    tiles = parts.take<std::byte>(2 * chunks * tile_bytes);
    scores = parts.take<std::byte>(chunks * kPanelBytes);
    decays = parts.take<float>(chunks * config.tile_k * kWord);
    progress.taken = parts.take<int>(heads * config.segments * kWord);
    progress.is_made = parts.take<unsigned>(chunks * kWord);
    if (config.segments > 1) {
      const std::int64_t segments = heads * config.segments;
      sums.row = static_cast<int>(ceil_div(problem.V, kValueTile) * kValueTile);
      sums.starts = parts.take<float>(segments * problem.K * sums.row * kWord);
      sums.decays = parts.take<float>(segments * kTileOfSegments * kWord);
    }
    bytes = parts.used();
  }
  std::byte* tiles;
  std::byte* scores;
  float* decays;
  WalkProgress progress;
  SegmentSums sums;
  std::size_t bytes;
};

GlaParams operand_params(const Problem& problem, const Args& args, const Config& config,
                         const WalkMemory& memory) {
  GlaParams params = side_of(problem, {}, false);
  params.tile_channels = config.tile_k;
  params.own_tiles = 1;
  params.x = token_view(args.q);
  params.y = token_view(args.k);
  params.channel_gate = gate_view(args.gk);
  params.gate_in_pairs = has_pairs(*args.gk);
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.sequences = pairs::chunked_sequences(problem, args);
  params.scale = static_cast<float>(args.scale);
  params.operand_panels = memory.tiles;
  params.scores = memory.scores;
  params.total_decay = memory.decays;
  return params;
}

constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

std::int64_t blocks_of(const Problem& problem) {
  return problem.sequences() * problem.H * ceil_div(problem.V, kValueTile);
}

/// Rounds of blocks: whole ones, where these are alike.
double rounds_of(const Problem& problem, std::int64_t blocks, const DeviceInfo& device) {
  const double rounds = static_cast<double>(blocks) / device.cores;
  return std::max(problem.N > 1 ? rounds : std::ceil(rounds), 1.0);
}

/// What a slice of so many key channels adds to the outputs of those before it, in microseconds.
double added_slice_us(const Problem& problem) {
  constexpr double kLaunch = 4, kBytes = 6, kBytesPerUs = 2.5e6;
  return kLaunch +
         static_cast<double>(problem.B * problem.T * problem.H * problem.V) * kBytes / kBytesPerUs;
}

/// About what cuda.gla_wgmma takes for a slice of so many key channels, in microseconds: of blocks of 64
/// value channels, or 128 of few key channels, in segments where there are few blocks. From 80 problems
/// on an H200; chunks of 192 keys from 202, of which what is chosen by this takes 1.008 of the faster of
/// both kernels.
double fused_walk_us(const Problem& problem, std::int64_t keys, const DeviceInfo& device) {
  constexpr double kLaunch = 6, kBlock = 2.5, kFewBlocks = 0.6, kInSegments = 1.6;
  const bool is_narrow = keys <= 128;
  const std::int64_t values = is_narrow && problem.V > 64 ? 128 : 64;
  const double of_chunk = is_narrow ? (values > 64 ? 3.1 : 2.4) : keys <= 192 ? 2.4 : 4.0;
  const std::int64_t blocks = problem.sequences() * problem.H * ceil_div(problem.V, values);
  const std::int64_t chunks = std::max<std::int64_t>(mean_chunks(problem, kChunkTokens), 1);
  if (static_cast<double>(blocks) < kFewBlocks * device.cores) {
    const std::int64_t segments = std::clamp<std::int64_t>(device.cores / blocks, 1, chunks);
    return kLaunch + (is_narrow ? 4 : 16) +
           kInSegments * of_chunk * static_cast<double>(ceil_div(chunks, segments));
  }
  return kLaunch +
         rounds_of(problem, blocks, device) * (kBlock + of_chunk * static_cast<double>(chunks));
}
/// The same of slices of few key channels that share a launch, as it has for short sequences, and of the
/// launch that adds up what they make: 24 us for T132 H8 K512 V512, which takes 20 on an H200.
double slices_beside_us(const Problem& problem, const channels::KeySlices& slices,
                        const DeviceInfo& device) {
  constexpr double kLaunch = 4, kBytes = 8, kBytesPerUs = 8e6;
  Problem sliced = problem;
  sliced.H *= slices.side_by_side;
  return fused_walk_us(sliced, slices.keys, device) + kLaunch +
         static_cast<double>(sliced.B * sliced.T * sliced.H * sliced.V) * kBytes / kBytesPerUs;
}
double fused_walks_us(const Problem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kWideSlice = 192;  // of which it has two, where these are all
  constexpr int kWide = 128;                // value channels of a block
  const auto slices = channels::key_slices_of(problem, channels::Products::kWgmma, kWide, true);
  if (slices.side_by_side > 1 && slices.keys < kMostKeys) {
    return slices_beside_us(problem, slices, device);
  }
  const bool is_wide = problem.K > kMostKeys && problem.K <= 2 * kWideSlice && problem.V > 64;
  const std::int64_t most = is_wide ? kWideSlice : kMostKeys;
  double us = 0;
  for (std::int64_t first = 0; first < problem.K; first += most) {
    us += fused_walk_us(problem, std::min(most, problem.K - first), device);
    if (first > 0) us += added_slice_us(problem);
  }
  return us;
}
constexpr double kSooner = 0.95;

class ChunkGlaKernel : public chunk_wgmma::ForwardKernel<ChunkGlaConfig> {
 public:
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionArgs;

  std::string_view name() const noexcept override { return "cuda.chunk_gla"; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "packed", "h0", "ht", "reverse"};
  }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    constexpr std::int64_t kMostChunks = std::int64_t{1} << 30;
    constexpr std::int64_t kKeysAsF16 = 128;
    if (const Support taken = takes(p, device, kMostSlicedKeys); !taken) return taken;
    if (p.dtype == DType::kF16 && p.K <= kKeysAsF16)
      return Support::no(refused::kDType, str("takes f16 with K over ", kKeysAsF16,
                                              ": of fewer, others round operands to f16"));
    if (!keys_have_gates(p) || values_have_gates(p))
      return Support::no(refused::kFeature, "needs gk, and no gv");
    if (p.snapshot_every > 0) return Support::no(refused::kShape, "states kept on the way");
    if (const Support even = evens_out_roundings(p); !even) return even;
    if (chunk_slots(p) * p.H > kMostChunks || blocks_of(p) > kMostBlocks)
      return Support::no(refused::kShape, "over 2^30 chunks of all heads");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    constexpr std::int64_t kMostBlocksInSegments = 65'535;
    if (const Support tile = has_narrowest_tile(problem, config); !tile) return tile;
    if (config.segments == 1) return Support::yes();
    if (config.tile_k != kTileOfSegments)
      return Support::no(refused::kInstance, str("segments are of tile_k=", kTileOfSegments));
    if (blocks_of(problem) * config.segments <= kMostBlocksInSegments) return Support::yes();
    return Support::no(refused::kShape, "has many blocks without segments");
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config best = tiles_of(problem.K);
    for (Config config = best; const int segments : kSegments) {
      config.segments = segments;
      if (!may_be_cut(problem, device, config)) continue;
      if (walks_us(problem, device, config) < walks_us(problem, device, best)) best = config;
    }
    return best;
  }

  /// With about as many segments as the device has room for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    const int meant = heuristic_config(problem, device).segments;
    std::vector<Config> configs;
    for (Config config = tiles_of(problem.K); const int segments : kSegments) {
      config.segments = segments;
      if (segments == 1 || (is_near(segments, meant) && may_be_cut(problem, device, config)))
        configs.push_back(config);
    }
    return configs;
  }

  /// Where it is sooner done than cuda.gla_wgmma, whose blocks make operands themselves; else it is
  /// behind that one.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const double own = walks_us(problem, device);
    return own < kSooner * fused_walks_us(problem, device) ? std::optional(own) : std::nullopt;
  }
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    return walks_us(problem, device, heuristic_config(problem, device));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return key_slices_bytes(problem, kMostKeys) + WalkMemory(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    const auto run_slice = [&](const Problem& slice, const Args& of_slice,
                               std::span<std::byte> workspace, std::int64_t) {
      const Config own = config_of_slice(slice.K, config);
      const WalkMemory memory(slice, own, workspace.data());
      chunk_wgmma::WalkParams walk = chunk_wgmma::forward_walk(
          slice, of_slice, {.tile_k = own.tile_k, .tile_v = kValueTile}, {});
      walk.segments = own.segments;
      with_element<__half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
        launch_walk<T>(own, walk, operand_params(slice, of_slice, own, memory), memory.progress,
                       memory.sums, stream);
      });
    };
    run_key_slices(problem, args, kMostKeys, site.workspace, stream, run_slice);
  }

 private:
  /// Of so many key channels, uncut.
  static Config tiles_of(std::int64_t keys) {
    return {.tile_k = axis_value_for(&Config::tile_k, keys)};
  }
  /// The last slice may do with a narrower tile.
  static Config config_of_slice(std::int64_t keys, const Config& config) {
    return config.segments > 1 ? config : tiles_of(keys);
  }
  /// Whether all segments have a multiprocessor and some chunks. Of packed sequences most may have none.
  static bool may_be_cut(const Problem& problem, const DeviceInfo& device, const Config& config) {
    constexpr std::int64_t kFewestChunks = 4;
    return problem.N <= 1 && config.tile_k == kTileOfSegments &&
           blocks_of(problem) * config.segments <= device.cores &&
           mean_chunks(problem, kChunkTokens) >= kFewestChunks * config.segments;
  }
  static double walks_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
    double us = 0;
    for (std::int64_t first = 0; first < problem.K; first += kMostKeys) {
      const std::int64_t keys = std::min<std::int64_t>(problem.K - first, kMostKeys);
      us += walk_us(problem, config_of_slice(keys, config), device);
      if (first > 0) us += added_slice_us(problem);
    }
    return us;
  }
  /// Microseconds of a slice: of the first chunk's operands, then of blocks that make as many as they
  /// walk. Of packed sequences each block has a first chunk, which others may be making. From 90 problems on
  /// an H200, and 75 of packed sequences.
  static double walk_us(const Problem& problem, const Config& config, const DeviceInfo& device) {
    constexpr double kLaunches = 8, kBlock = 2;
    constexpr double kOfPanel = 2.4, kOfPanelBehindGates = 3.0;  // of which no copies are ahead
    const bool is_wide = config.tile_k > 128;
    const bool waits_for_gates = (problem.gates & (ops::kGateG | ops::kGateGamma)) != 0 ||
                                 (is_wide && problem.gate_dtype == ops::GateDType::kF32);
    const double operands = config.tile_k / static_cast<double>(kPanelChannels) *
                            (waits_for_gates ? kOfPanelBehindGates : kOfPanel);
    const double of_head = operands / static_cast<double>(ceil_div(problem.V, kValueTile));
    const double of_chunk = is_wide ? 1.6 : 1.2;
    if (config.segments > 1) {
      constexpr double kOfSum = 1.3;
      const auto chunks =
          static_cast<double>(ceil_div(mean_chunks(problem, kChunkTokens), config.segments));
      return 2 * (kLaunches + kBlock) + operands + chunks * (std::max(kOfSum, of_head) + of_chunk);
    }
    constexpr double kOfFirstChunk = 0.6;
    const bool is_packed = problem.N > 1;
    const ExpectedWalk walk{.block = kBlock + (is_packed ? kOfFirstChunk * operands : 0),
                            .chunk = std::max(of_chunk, of_head),
                            .chunk_tokens = kChunkTokens,
                            .rounds = rounds_of(problem, blocks_of(problem), device)};
    return kLaunches + (is_packed ? 0 : operands) + expected_walk_us(walk, LikelyLengths(problem));
  }
};

}  // namespace
}  // namespace attune::cuda::gla::forward

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_chunk_gla() {
  return std::make_unique<WithStoredStates<WithPaddedRows<gla::forward::ChunkGlaKernel>>>();
}

}  // namespace attune::cuda
