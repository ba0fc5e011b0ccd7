#include <algorithm>
#include <limits>

#include "cuda/chunk_mma/expected_time.hpp"
#include "cuda/chunk_mma/run.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::chunk_mma {
namespace {

class ChunkMma : public Kernel<ChunkMmaConfig> {
 public:
  using Config = ChunkMmaConfig;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    const int copied = is_split(problem) ? kChannelsPerSplitCopy : kChannelsPerCopy;
    return problem.aligned && problem.K % copied == 0 && problem.V % copied == 0;
  }
  static bool takes_rows(const Problem&, const Args&) { return false; }

  std::string_view name() const noexcept override { return "cuda.chunk_mma"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80"))
      return Support::no(refused::kDevice, "needs sm_80");
    if (has_channel_gates(problem) && !is_split(problem)) {
      return Support::no(refused::kDType, "takes gk and gv in f32 alone");
    }
    if (problem.K > kMostSlicedKeys) {
      return Support::no(refused::kShape, str("takes K <= ", kMostSlicedKeys));
    }
    if (problem.T > kMostTokens)
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    if (!takes_rows(problem)) {
      return Support::no(refused::kAlignment,
                         "takes rows that start at multiples of 16 bytes and have whole ones");
    }
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.warps = 4}) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    const int keys = padded_slice_keys(problem);
    if (is_split(problem) && !is_compiled_split(keys, config)) {
      return Support::no(refused::kInstance, "f32 takes chunk=32");
    }
    if (!is_compiled(keys, config))
      return Support::no(refused::kInstance, "K > 128 takes chunk=32");
    const auto bytes = static_cast<std::int64_t>(shared_bytes(problem, config));
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

  /// Wide blocks read q and k the fewest times; of short sequences in 16 bits narrow ones are sooner
  /// done, and in f32 where they are expected to be. Where there is one for every multiprocessor,
  /// short chunks do less; where sequences have to be cut for that, long ones keep their segments
  /// long.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    if (is_split(problem)) return split_config(problem, device);
    constexpr std::int64_t kFewTokens = 160;
    const bool narrow = problem.V <= 64 || has_at_most(problem, kFewTokens);
    const Config config = config_of(problem, device, narrow ? 4 : 8);
    if (narrow) return config;
    const Config other = config_of(problem, device, 4);
    const Problem alike = as_batch(problem);
    const auto us = [&](const Config& of) {
      return chunk_mma::walks_us(alike, device, of, kLongWalks);
    };
    const bool is_expected = !problem.pool && has_at_most(problem, kMostExpectedTokens);
    if (is_expected && us(other) < us(config)) return other;
    Config longer = config;
    longer.chunk = 64;
    longer.segments = segments_for(problem, device, longer);
    const bool is_better = config.warps == 8 && padded_slice_keys(problem) == 128;
    return is_better && longer.segments > 1 && fits(problem, device, longer) ? longer : config;
  }

  /// In 16 bits it comes after cuda.chunk_wgmma where it says nothing.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (!is_split(problem) && !has_expected_time(problem)) return std::nullopt;
    return walks_us(problem, device);
  }
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    const Config config = heuristic_config(problem, device);
    if (is_split(problem)) return split_us(problem, device, config);
    const WalkCosts& costs = is_short(problem) ? kShortWalks : kLongWalks;
    return chunk_mma::walks_us(problem, device, config, costs);
  }

  /// Shapes of a block that measured best somewhere, each with about as many segments as there is
  /// room for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    constexpr Config kNarrow[] = {{.warps = 4, .chunk = 32, .stages = 3},
                                  {.warps = 4, .chunk = 32, .stages = 2},
                                  {.warps = 4, .chunk = 64, .stages = 2}};
    constexpr Config kWide[] = {{.warps = 8, .chunk = 64, .stages = 3},
                                {.warps = 8, .chunk = 64, .stages = 2},
                                {.warps = 8, .chunk = 32, .stages = 3}};
    std::vector<Config> configs;
    const auto add = [&](Config config) {
      if (!fits(problem, device, config)) return;
      const int expected = segments_for(problem, device, config);
      for (const int segments : kSegments) {
        config.segments = segments;
        if (is_near(segments, expected) && fits(problem, device, config)) configs.push_back(config);
      }
    };
    std::ranges::for_each(kNarrow, add);
    if (problem.V > 64) std::ranges::for_each(kWide, add);
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const std::size_t added = is_split(problem) ? 0 : key_slices_bytes(problem, kMostKeys);
    return added + Workspace(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (is_split(problem)) return run_split(problem, args, config, site.workspace, stream);
    run_key_slices(
        problem, args, kMostKeys, site.workspace, stream,
        [&](const Problem& slice, const Args& own, std::span<std::byte> memory, std::int64_t) {
          with_element<__half, __nv_bfloat16>(
              slice.dtype, [&]<class T>() { run_slice<T>(slice, own, config, memory, stream); });
        });
  }

 private:
  /// In f32: of blocks and stages, each with the segments that take least, those that are expected to.
  Config split_config(const Problem& problem, const DeviceInfo& device) const {
    const Problem alike = as_batch(problem);
    Config best{.warps = 4, .chunk = 32, .stages = 2};
    double least = std::numeric_limits<double>::infinity();
    for (const int warps : {8, 4}) {
      if (warps == 8 && problem.V <= 64) continue;
      for (const int stages : {3, 2}) {
        Config config{.warps = warps, .chunk = 32, .stages = stages};
        if (!fits(problem, device, config)) continue;
        config.segments = segments_for(problem, device, config);
        const double us = split_us(alike, device, config);
        if (us < least) {
          best = config;
          least = us;
        }
      }
    }
    return best;
  }

  /// In 16 bits, with blocks of so many warps, or fewer where those do not fit. Two stages, with which
  /// more blocks share a multiprocessor, where a third gains nothing: of few tokens three took 0.9 to 1.4
  /// times as long on 65 problems of an H100.
  Config config_of(const Problem& problem, const DeviceInfo& device, int warps) const {
    constexpr std::int64_t kFewTokens = 256;
    Config config{.warps = warps, .chunk = 32};
    const bool two_do = warps == 4 && has_at_most(problem, kFewTokens);
    if (two_do || !fits(problem, device, config) || shares_more(problem, device, config)) {
      config.stages = 2;
    }
    if (!fits(problem, device, config)) config.warps = 4;
    config.segments = segments_for(problem, device, config);
    return config;
  }

  /// Whether blocks wait for each other that would share multiprocessors with two stages.
  static bool shares_more(const Problem& problem, const DeviceInfo& device, const Config& config) {
    Config two = config;
    two.stages = 2;
    const std::int64_t room = room_for(problem, device, config);
    return block_count(problem, config) > room && room_for(problem, device, two) > room;
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_mma

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_mma() {
  return std::make_unique<WithStoredStates<WithPaddedRows<chunk_mma::ChunkMma>>>();
}
