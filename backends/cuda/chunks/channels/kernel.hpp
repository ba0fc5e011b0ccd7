// The kernel classes with a decay for every channel: what problems they take, how they are tuned
// and launched. Traits is what differs between them:
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

#include "cuda/chunks/channels/blocks.hpp"
#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/group_sums.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::channels {

using Args = ops::RecurrentAttentionArgs;

/// A gate of a call, and whether all its rows start at multiples of 16 bytes.
inline ChannelGate channel_gate(const std::optional<ConstTensorView>& gate) {
  if (!gate) return {};
  constexpr std::int64_t kBytes = 16;
  const auto width = static_cast<std::int64_t>(size_of(gate->dtype));
  bool aligned = reinterpret_cast<std::uintptr_t>(gate->data) % kBytes == 0;
  for (int dim = 0; dim + 1 < 4; ++dim) {
    aligned = aligned && (gate->size(dim) == 1 || gate->stride(dim) * width % kBytes == 0);
  }
  return {gate_view(gate), aligned};
}

template <class Traits>
class ChannelDecayKernel : public Kernel<typename Traits::Config>,
                           public ops::SummarisingWalk<ops::RecurrentAttention>,
                           private ChannelBlocks<Traits> {
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
    const KeySlices slices = slices_of(problem, config.tile_v);
    if (slices.launches == 1) return launch_bytes(problem, config);
    return key_slices_bytes(problem, slices.keys) +
           std::max(launch_bytes(first_slice(problem, config), config),
                    launch_bytes(last_slice(problem, config), config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    const auto run_slice = [&](const Problem& slice, const Args& of_slice,
                               std::span<std::byte> workspace, std::int64_t) {
      run_launch(slice, of_slice, config, workspace, stream);
    };
    const KeySlices slices = slices_of(problem, config.tile_v);
    if (slices.launches == 1) return run_slice(problem, args, site.workspace, 0);
    run_key_slices(problem, args, slices.keys, site.workspace, stream, run_slice);
  }

  bool summarises(const Problem& problem, const ConfigBlob& blob) const override {
    return has_instance(problem, this->unpack(blob).tile_v) && gated_of(problem) == Gated::kKeys &&
           problem.K <= kMostKeys && takes_rows(problem) && !problem.pool &&
           problem.state_dtype == DType::kF32 &&
           slices_of(problem, this->unpack(blob).tile_v).side_by_side == 1;
  }
  std::size_t summarising_bytes(const Problem& problem, const ConfigBlob& blob) const override {
    Params unplaced;
    unplaced.part = Part::kSummaries;
    return place_workspace(unplaced, problem, this->unpack(blob), nullptr);
  }
  void summarise(const Problem& problem, const Args& args, const ops::SummaryOutputs& to,
                 const ConfigBlob& blob, const LaunchSite& site) const override {
    launch_part(Part::kSummaries, problem, args, summary_views(to), this->unpack(blob), site);
  }
  void walk_on(const Problem& problem, const Args& args, const ConfigBlob& blob,
               const LaunchSite& site) const override {
    launch_part(Part::kWalk, problem, args, {}, this->unpack(blob), site);
  }

 private:
  using Blocks = ChannelBlocks<Traits>;
  using Blocks::block_choice_us;
  using Blocks::block_count;
  using Blocks::block_of;
  using Blocks::first_slice;
  using Blocks::has_instance;
  using Blocks::has_starts;
  using Blocks::kNarrowest;
  using Blocks::last_slice;
  using Blocks::parts_of;
  using Blocks::plane_bytes;
  using Blocks::segments_cost;
  using Blocks::shared_stages;
  using Blocks::slices_of;
  using Blocks::subsegments_of;
  using Blocks::widest_keys;
  using typename Blocks::Block;

  static Params params_of(const Problem& problem, const Args& args, const Config& config,
                          std::span<std::byte> workspace, Part part = Part::kAll) {
    Params params{walk_params(problem, args, config.tile_v, config.stages, config.segments),
                  channel_gate(args.gk), channel_gate(args.gv)};
    params.part = part;
    params.query_growth = query_growth(params.scale);
    params.slice_keys = widest_keys(problem, config.tile_v);
    params.copied_keys = params.key_channels;
    if (part != Part::kAll) params.sequences.most_left_out = 0;  // nobody takes them
    if (part == Part::kAll) {
      params.slices = slices_of(problem, config.tile_v).side_by_side;
      if (params.slices > 1) params.copied_keys = params.slice_keys;
      params.parts = parts_of(problem, config);
      params.subsegments = subsegments_of(problem, config);
    }
    params.has_starts = part == Part::kAll && has_starts(problem, params.parts, config);
    params.set_sums(saved_states_of(config.segments));
    place_workspace(params, problem, config, workspace.data());
    return params;
  }
  static void launch(const Problem& problem, const Params& params, const Config& config,
                     cudaStream_t stream) {
    with_element<__half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      with_value_of<Traits::kGated>(gated_of(problem), [&]<Gated kGated>() {
        Traits::template launch<T, kGated>(params, config, stream);
      });
    });
  }
  /// What one launch takes; of a call, or of one of its slices, which may be cut once more.
  static std::size_t launch_bytes(const Problem& problem, const Config& config) {
    Params unplaced;
    unplaced.parts = parts_of(problem, config);
    unplaced.slices = slices_of(problem, config.tile_v).side_by_side;
    const std::size_t planes = unplaced.slices > 1 ? plane_bytes(problem, unplaced.slices) : 0;
    return planes + place_workspace(unplaced, problem, config, nullptr);
  }
  /// All slices of key channels that share a launch, and a sum of what they make of the outputs.
  static void run_launch(const Problem& problem, const Args& args, const Config& config,
                         std::span<std::byte> workspace, cudaStream_t stream) {
    const int slices = slices_of(problem, config.tile_v).side_by_side;
    if (slices == 1) {
      return launch(problem, params_of(problem, args, config, workspace), config, stream);
    }
    const std::size_t of_planes = plane_bytes(problem, slices);
    Params params = params_of(problem, args, config, workspace.subspan(of_planes));
    const std::int64_t row = padded_channels(problem.V);
    const std::int64_t head = slices * row;
    const std::int64_t token = problem.H * head;
    params.o = {workspace.data(), problem.T * token, token, head};
    params.output_plane = row;
    launch(problem, params, config, stream);
    const GroupSumParams sum{.partials = workspace.data(),
                             .rows = problem.B * problem.T,
                             .tokens = problem.T,
                             .heads = problem.H,
                             .group = slices,
                             .columns = row,
                             .out = token_view(args.o)};
    with_element<__half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_group_sums<T>(std::span(&sum, 1), stream); });
  }
  static void launch_part(Part part, const Problem& problem, const Args& args,
                          const SummaryViews& summaries, const Config& config,
                          const LaunchSite& site) {
    const DeviceGuard guard(args.q.device.index);
    Params params = params_of(problem, args, config, site.workspace, part);
    params.summaries = summaries;
    launch(problem, params, config, static_cast<cudaStream_t>(site.stream));
  }

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

  /// Places the segments, their states and decays; returns the bytes they take.
  static std::size_t place_workspace(Params& params, const Problem& problem, const Config& config,
                                     std::byte* workspace) {
    WorkspaceParts parts(workspace);
    params.parts.places = parts.take<PartPlace>(params.parts.places_bytes());
    params.segments = config.segments;
    if (!params.is_cut() && !params.sums_all()) return parts.used();
    constexpr std::int64_t kFloat = sizeof(float);
    const std::int64_t of_head = params.parts.tokens > 0
                                     ? parts_of_sums(params.parts).sums(problem.T)
                                     : problem.sequences() * saved_states_of(config.segments);
    const std::int64_t saved = of_head * problem.H * params.slices;
    const std::int64_t keys = widest_keys(problem, config.tile_v);
    const std::int64_t values = value_tiles(problem, config.tile_v) * config.tile_v;
    params.segment_states = parts.take<float4>(saved * keys * values * kFloat);
    params.segment_decays = parts.take<float>(saved * keys * kFloat);
    params.segment_value_decays = parts.take<float>(saved * values * kFloat);
    return parts.used();
  }
};

}  // namespace attune::cuda::channels
