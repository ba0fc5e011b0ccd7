// The kernel classes with a decay for every channel: what problems they take and how they are tuned; their
// launches are launches.hpp's. Traits is what differs between them:
//
//   Config             tile_v, stages and segments
//   kName, kVersion    of the kernel
//   kProducts, kGated  what multiplies the state, and which channels may have gates
//   takes()            what else a problem and a device must have
//   most_stages()      of a block of so many value channels: more are no faster
//   launch<T, gated>()
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <attune/core/axis_values.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "cuda/chunks/channels/launches.hpp"
#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"

namespace attune::cuda::channels {

template <class Traits>
class ChannelDecayKernel : public Kernel<typename Traits::Config>,
                           public ops::SummarisingWalk<ops::RecurrentAttention>,
                           private ChannelLaunches<Traits> {
 public:
  using Config = typename Traits::Config;
  using Problem = ops::RecurrentAttentionProblem;  // both bases have one
  using Args = ops::RecurrentAttentionArgs;
  static_assert(smallest_value(&Config::stages) >= kFewestStages);

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    return problem.aligned && problem.K % kChannelsPerCopy == 0 &&
           problem.V % kChannelsPerCopy == 0;
  }
  static bool takes_rows(const Problem&, const Args&) { return false; }

  /// Whether the last launch of a call writes no outputs of single tokens on a pool
  /// (with_stored_states.hpp). Slices of K add up all outputs, and so do copies.
  static bool leaves_single_tokens(const Problem& problem, const Config&) {
    return takes_rows(problem) && problem.K <= kMostKeys;
  }

  std::string_view name() const noexcept override { return Traits::kName; }
  int version() const noexcept override { return Traits::kVersion; }

  std::vector<std::string_view> features() const override { return Traits::features(); }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (const Support support = Traits::takes(problem, device); !support) return support;
    if (problem.dtype == DType::kF32) return Support::no(refused::kDType, "takes f16 and bf16");
    // Where both sides have gates, operands of both are rounded once more.
    const std::int64_t most_keys =
        gated_of(problem) == Gated::kBoth ? kMostSlicedKeys / 2 : kMostSlicedKeys;
    if (problem.K > most_keys) {
      return Support::no(refused::kShape, str("takes K <= ", most_keys));
    }
    if (problem.K % kChannelsPerCopy != 0 || problem.V % kChannelsPerCopy != 0) {
      return Support::no(refused::kShape,
                         str("takes K and V that are multiples of ", kChannelsPerCopy));
    }
    if (const Support even = evens_out_roundings(problem); !even) return even;
    if (problem.T > kMostTokens)
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    if (!problem.aligned)
      return Support::no(refused::kAlignment, "takes rows that start at multiples of 16 bytes");
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.tile_v = kNarrowest}) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (!has_instance(problem, config.tile_v)) {
      return Support::no(refused::kInstance,
                         str("values=", config.tile_v, " is for fewer keys without gv"));
    }
    // Fewer key channels may go with longer chunks.
    const std::int64_t bytes = std::max({block_of(problem, config).bytes,
                                         block_of(first_slice(problem, config), config).bytes,
                                         block_of(last_slice(problem, config), config).bytes});
    if (bytes > device.l1_bytes) {
      return Support::no(
          refused::kMemory,
          str("needs ", bytes, " bytes of shared memory a block, of which there are ",
              device.l1_bytes));
    }
    if (block_count(problem, config) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "needs more blocks than a launch may have");
    }
    return Support::yes();
  }

  /// Wide blocks make the operands of a head once; narrow ones are sooner done, where there is room for
  /// them.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    constexpr std::int64_t kFewTokens = 640;  // whose blocks begin and end as long as they walk
    const int widest = axis_value_for(&Config::tile_v, problem.V);
    const bool has_multiprocessor =
        is_short(problem) &&
        problem.sequences() * problem.H * value_tiles(problem, kNarrowest) <= device.cores;
    const Config narrow = config_of(problem, device, kNarrowest);
    const bool sooner =
        has_multiprocessor && is_short(problem, kFewTokens) && problem.K <= kMostOfOneSlice;
    if (sooner || widest == kNarrowest || !has_instance(problem, widest)) {
      return narrow;
    }
    const Config wide = config_of(problem, device, widest);
    return block_choice_us(problem, device, wide) < block_choice_us(problem, device, narrow)
               ? wide
               : narrow;
  }

  /// Of a few tokens, of which other kernels say what they expect.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (!has_few_tokens(problem)) return std::nullopt;
    return walks_us(problem, device);
  }

  /// Microseconds of short sequences: of their blocks, and of rows and states through memory, fitted to
  /// 287 configs of 46 problems on an H100.
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    constexpr double kOfBlock = 2.14;
    constexpr double kOfState = 0.129;  // of a block, to read or to write 64 by 64 elements of it
    constexpr double kOfPanel = 0.877;  // of key channels, of a chunk
    constexpr double kOfWide = 1.44;
    constexpr double kShared = 0.429;  // of a round, for each further block of a multiprocessor
    constexpr double kBytesPerUs = 1.92e6;
    const Config config = heuristic_config(problem, device);
    const Block block = block_of(problem, config);
    const double panels = widest_keys(problem, config.tile_v) / static_cast<double>(kPanelChannels);
    const int states = (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
    const ExpectedWalk walk{
        .block = kOfBlock + kOfState * states * panels * config.tile_v / kNarrowest,
        .chunk = kOfPanel * panels * (config.tile_v > kNarrowest ? kOfWide : 1.0),
        .chunk_tokens = static_cast<double>(block.chunk_tokens),
        .rounds =
            shared_rounds(block_count(problem, config),
                          room_for_blocks(device, block.bytes, block.resident), device, kShared),
        .key_slices = static_cast<double>(slices_of(problem, config.tile_v).launches),
        .traffic = bytes_in_16_bits(problem, states) / kBytesPerUs};
    return expected_walk_us(walk, LikelyLengths(problem));
  }

  /// With about as many segments as the device has room for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const Config& config : all_configs<Config>()) {
      if (config.tile_v > kNarrowest && problem.V <= kNarrowest) continue;
      if (!this->fits(problem, device, config)) continue;
      if (is_near(config.segments, segments_cost(problem, device, config).segments)) {
        configs.push_back(config);
      }
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return Launches::call_bytes(problem, config);
  }
  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    Launches::launch_call(problem, args, config, site);
  }

  bool summarises(const Problem& problem, const ConfigBlob& blob) const override {
    return has_instance(problem, this->unpack(blob).tile_v) && gated_of(problem) == Gated::kKeys &&
           problem.K <= kMostKeys && takes_rows(problem) && !problem.pool &&
           problem.state_dtype == DType::kF32 &&
           slices_of(problem, this->unpack(blob).tile_v).side_by_side == 1;
  }
  std::size_t summarising_bytes(const Problem& problem, const ConfigBlob& blob) const override {
    return Launches::part_bytes(Part::kSummaries, problem, this->unpack(blob));
  }
  void summarise(const Problem& problem, const Args& args, const ops::SummaryOutputs& to,
                 const ConfigBlob& blob, const LaunchSite& site) const override {
    Launches::launch_part(Part::kSummaries, problem, args, summary_views(to), this->unpack(blob),
                          site);
  }
  void walk_on(const Problem& problem, const Args& args, const ConfigBlob& blob,
               const LaunchSite& site) const override {
    Launches::launch_part(Part::kWalk, problem, args, {}, this->unpack(blob), site);
  }

 private:
  using Launches = ChannelLaunches<Traits>;
  using Blocks = ChannelBlocks<Traits>;
  using Blocks::block_choice_us;
  using Blocks::block_count;
  using Blocks::block_of;
  using Blocks::first_slice;
  using Blocks::has_instance;
  using Blocks::kNarrowest;
  using Blocks::last_slice;
  using Blocks::segments_cost;
  using Blocks::shared_stages;
  using Blocks::slices_of;
  using Blocks::widest_keys;
  using typename Blocks::Block;

  /// With blocks of so many value channels. The fewest stages suffice where a chunk takes long, and for
  /// short sequences: on 60 problems of an H100 five took 0.95 to 1.7 times as long, 1.05 in the mean.
  /// Else as many as there is memory for beside the other blocks of a multiprocessor.
  Config config_of(const Problem& problem, const DeviceInfo& device, int tile_v) const {
    Config config{.tile_v = tile_v, .stages = Traits::most_stages(problem, tile_v)};
    while (config.stages > kFewestStages && !this->fits(problem, device, config)) --config.stages;
    config.stages = shared_stages(problem, device, config);
    config.segments = segments_cost(problem, device, config).segments;
    return config;
  }
};

}  // namespace attune::cuda::channels
