// The launches of a kernel with a decay for every channel: what memory a call takes, and how its slices of K
// and its parts are queued. Traits as in kernel.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/channels/blocks.hpp"
#include "cuda/chunks/group_sums.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::channels {

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
struct ChannelLaunches : ChannelBlocks<Traits> {
  using Config = typename Traits::Config;
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionArgs;

  /// What a call takes of memory: of one launch, or of slices of K one behind the other.
  static std::size_t call_bytes(const Problem& problem, const Config& config) {
    const KeySlices slices = slices_of(problem, config.tile_v);
    if (slices.launches == 1) return launch_bytes(problem, config);
    return key_slices_bytes(problem, slices.keys) +
           std::max(launch_bytes(first_slice(problem, config), config),
                    launch_bytes(last_slice(problem, config), config));
  }
  static void launch_call(const Problem& problem, const Args& args, const Config& config,
                          const LaunchSite& site) {
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

  static std::size_t part_bytes(Part part, const Problem& problem, const Config& config) {
    Params unplaced;
    unplaced.part = part;
    return place_workspace(unplaced, problem, config, nullptr);
  }
  static void launch_part(Part part, const Problem& problem, const Args& args,
                          const SummaryViews& summaries, const Config& config,
                          const LaunchSite& site) {
    const DeviceGuard guard(args.q.device.index);
    Params params = params_of(problem, args, config, site.workspace, part);
    params.summaries = summaries;
    launch(problem, params, config, static_cast<cudaStream_t>(site.stream));
  }

 protected:
  using Blocks = ChannelBlocks<Traits>;
  using Blocks::block_of;
  using Blocks::first_slice;
  using Blocks::has_starts;
  using Blocks::kept_in_shared;
  using Blocks::last_slice;
  using Blocks::parts_of;
  using Blocks::plane_bytes;
  using Blocks::slices_of;
  using Blocks::starts_late;
  using Blocks::subsegments_of;
  using Blocks::widest_keys;

 private:
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
    if (params.part == Part::kAll && starts_late(problem)) {
      const std::int64_t tiles = value_tiles(problem, config.tile_v);
      params.late = place_late_starts(parts, {.sequences = problem.sequences(),
                                              .tokens = problem.T,
                                              .packed = problem.N > 0,
                                              .blocks = problem.H * tiles * params.slices,
                                              .keys = keys,
                                              .chunk = block_of(problem, config).chunk_tokens,
                                              .states = saved * tiles});
      params.late.in_shared = kept_in_shared(problem, config);
    }
    return parts.used();
  }
};

}  // namespace attune::cuda::channels
