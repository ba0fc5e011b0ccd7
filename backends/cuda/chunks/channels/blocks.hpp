// The blocks of a kernel with a decay for every channel: which instance takes a problem, in how many slices
// and segments, and what that is expected to cost. Traits as in kernel.hpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/axis_values.hpp>
#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/chunks/channels/slices.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::channels {

template <class Traits>
struct ChannelBlocks {
  using Config = typename Traits::Config;
  using Problem = ops::RecurrentAttentionProblem;

  static constexpr int kNarrowest = smallest_value(&Config::tile_v);

  static KeySlices slices_of(const Problem& problem, int tile_v) {
    return key_slices_of(problem, Traits::kProducts, tile_v, tile_v > kNarrowest);
  }
  /// Of the planes that slices make of the outputs.
  static std::size_t plane_bytes(const Problem& problem, int slices) {
    WorkspaceParts planes(nullptr);
    planes.take(problem.B * problem.T * problem.H * padded_channels(problem.V) * slices *
                static_cast<std::int64_t>(size_of(problem.dtype)));
    return planes.used();
  }
  /// Key channels of the instance for the first slice.
  static int widest_keys(const Problem& problem, int tile_v) {
    return padded_keys(std::min<std::int64_t>(problem.K, slices_of(problem, tile_v).keys));
  }

  static bool has_instance(const Problem& problem, int tile_v) {
    const Gated gated = gated_of(problem);
    return std::ranges::find(Traits::kGated, gated) != std::ranges::end(Traits::kGated) &&
           is_compiled(Traits::kProducts, widest_keys(problem, tile_v), tile_v, gated);
  }

  static Problem first_slice(Problem problem, const Config& config) {
    problem.K = std::min<std::int64_t>(problem.K, slices_of(problem, config.tile_v).keys);
    return problem;
  }
  static Problem last_slice(Problem problem, const Config& config) {
    problem.K = (problem.K - 1) % slices_of(problem, config.tile_v).keys + 1;
    return problem;
  }

  /// What a block of an instance takes of a multiprocessor.
  struct Block {
    std::int64_t bytes = 0;  // of shared memory
    int resident = 1;        // as many have room in the registers
    int chunk_tokens = 1;
  };
  static Block block_of(const Problem& problem, const Config& config) {
    Block block;
    with_value_of<Traits::kGated>(gated_of(problem), [&]<Gated kGated>() {
      with_shape<Traits::kProducts, kGated>(
          widest_keys(problem, config.tile_v), config, [&]<class Shape>() {
            block = {static_cast<std::int64_t>(shared_bytes<Shape>(config.stages)),
                     Shape::kResidentBlocks, Shape::kChunk};
          });
    });
    return block;
  }

  /// The most stages, up to the config's, with which as many blocks share a multiprocessor as have
  /// room in its registers; the config's where no number does that.
  static int shared_stages(const Problem& problem, const DeviceInfo& device, const Config& config) {
    for (Config fewer = config; fewer.stages >= kFewestStages; --fewer.stages) {
      const Block block = block_of(problem, fewer);
      if (block.bytes * block.resident <= device.l1_bytes) return fewer.stages;
    }
    return config.stages;
  }

  /// Blocks of the kernel that makes the outputs.
  static std::int64_t block_count(const Problem& problem, const Config& config) {
    return problem.sequences() * problem.H * value_tiles(problem, config.tile_v) *
           slices_of(problem, config.tile_v).side_by_side * config.segments;
  }

  /// Tokens of a segment that take longer than a launch.
  static constexpr std::int64_t kLeastTokens = 256;

  /// Of segments that are not cut in two.
  static bool has_starts(const Problem& problem, const SequenceParts& parts, const Config& config) {
    return parts.tokens == 0 && config.segments > kMostCutInTwo && !starts_late(problem) &&
           makes_starts(config.segments, state_bytes(problem, config));
  }
  /// Of a block.
  static std::int64_t state_bytes(const Problem& problem, const Config& config) {
    return std::int64_t{widest_keys(problem, config.tile_v)} * config.tile_v *
           std::int64_t{sizeof(float)};
  }

  /// Whether segments start from zeros, if there are any. Snapshots are of states, not of what adds to them.
  static bool starts_late(const Problem& problem) {
    return problem.snapshot_every == 0 && has_late_starts(Traits::kProducts, gated_of(problem));
  }

  /// Tiles of q' of late starts that a block has room for.
  static int kept_in_shared(const Problem& problem, const Config& config) {
    constexpr std::int64_t kOfMultiprocessor = 227 * 1024;  // of sm_90, which alone has late starts
    constexpr std::int64_t kOfBlock = 1024;                 // that the device takes
    constexpr std::int64_t kElement = 2;
    const Block block = block_of(problem, config);
    const std::int64_t room = kOfMultiprocessor / block.resident - kOfBlock - block.bytes;
    const std::int64_t tile = widest_keys(problem, config.tile_v) * block.chunk_tokens * kElement;
    return static_cast<int>(std::max<std::int64_t>(room / tile, 0));
  }

  static SequenceParts parts_of(const Problem& problem, const Config& config) {
    return walked_parts(problem, value_tiles(problem, config.tile_v), config.segments,
                        kLeastTokens);
  }

  /// Two, where an even share of the first launch saves more chunks than a second walk and more
  /// states to pass take: 8, or 4 of few keys (B1 T8192 H32 D128 171 -> 161 us on an H200, but 4 x 2048 tokens of 8
  /// heads 62 -> 70 on an H100, where it would save 4).
  static int subsegments_of(const Problem& problem, const Config& config) {
    if (config.segments == 1 || config.segments > kMostCutInTwo || starts_late(problem)) {
      return 1;
    }
    const std::int64_t saved = widest_keys(problem, config.tile_v) > kPanelChannels ? 8 : 4;
    const std::int64_t chunks = mean_chunks(problem, block_of(problem, config).chunk_tokens);
    return chunks >= saved * config.segments * config.segments ? kMostSubsegments : 1;
  }

  /// Microseconds of a problem, to choose among blocks by: fitted to 30 problems on an H100, and right
  /// for 44 others of up to 128 key channels; wide blocks with gates of values to 90 on an H200.
  static double block_choice_us(const Problem& problem, const DeviceInfo& device,
                                const Config& config) {
    constexpr double kOfChunk = 0.8, kOfKey = 0.0048;
    constexpr double kOfWide = 1.05, kOfWideWithValueGates = 1.2;
    constexpr double kBytesOfSum = 6, kBytesPerUs = 2.5e6;  // of an output, for each further slice
    const int slice = slices_of(problem, config.tile_v).keys;
    double chunk_us = 0;
    std::int64_t launches = slices_of(problem, config.tile_v).launches;
    for (std::int64_t keys = problem.K; launches > 0; keys -= slice, --launches) {
      chunk_us += kOfChunk + kOfKey * padded_keys(std::min<std::int64_t>(keys, slice));
    }
    if (config.tile_v > kNarrowest) {
      chunk_us *= gated_of(problem) == Gated::kKeys ? kOfWide : kOfWideWithValueGates;
    }
    const auto sums = static_cast<double>((ceil_div(problem.K, slice) - 1) * problem.B * problem.T *
                                          problem.H * problem.V);
    return chunk_us * segments_cost(problem, device, config).chunks +
           sums * kBytesOfSum / kBytesPerUs;
  }

  static SegmentsCost segments_cost(const Problem& problem, const DeviceInfo& device,
                                    Config config) {
    constexpr double kSharedByWgmma = 1.4;  // of an H200
    config.segments = 1;
    const Block block = block_of(problem, config);
    // Wide blocks take about as long for a chunk as narrow ones, but their states are larger.
    const double width = static_cast<double>(config.tile_v) / kNarrowest;
    SegmentTimes times;
    times.state *= width;
    times.start *= width;
    if (Traits::kProducts == Products::kWgmma) times.shared = kSharedByWgmma;
    const bool late = starts_late(problem);
    // The walk and the outputs that a start reaches, then the join: the fastest segments of five sweeps on
    // an H200 have these.
    if (late) {
      times.both_walks = 1.25;
      times.launch = 3;
    }
    return cheapest_segments(
        {.blocks = block_count(problem, config),
         .room = room_for_blocks(device, block.bytes, block.resident),
         .chunks = mean_chunks(problem, block.chunk_tokens),
         .state_bytes = late ? 0 : bytes_for_starts(problem, state_bytes(problem, config))},
        device, times);
  }
};

}  // namespace attune::cuda::channels
