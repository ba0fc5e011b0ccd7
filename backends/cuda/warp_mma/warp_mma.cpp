#include <limits>
#include <vector>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/warp_mma/walks.hpp"

namespace attune::cuda::warp_mma {
namespace {

Params params_of(const Problem& problem, const Args& args, const Config& config,
                 std::byte* memory) {
  const Workspace workspace(problem, config, memory);
  return {.q = token_view(args.q),
          .k = token_view(args.k),
          .v = token_view(args.v),
          .g = gate_view(args.g),
          .gk = walk_gate(args.gk),
          .gv = walk_gate(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .initial_state = initial_states(args),
          .o = token_view(args.o),
          .final_state = final_states(args),
          .snapshots = snapshots_view(args),
          .sequences = walked_sequences(args, problem.T),
          .sequence_count = problem.sequences(),
          .heads = static_cast<int>(problem.H),
          .heads_per_kv = static_cast<int>(problem.H / problem.Hkv),
          .key_channels = static_cast<int>(problem.K),
          .value_channels = static_cast<int>(problem.V),
          .scale = static_cast<float>(args.scale),
          .reverse = problem.reverse,
          .segment_tokens = config.segment,
          .parts = parts_of(problem, config),
          .sums = workspace.sums,
          .key_decays = workspace.key_decays,
          .value_decays = workspace.value_decays};
}

class WarpMma : public Kernel<WarpMmaConfig> {
 public:
  using Config = WarpMmaConfig;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) { return has_whole_rows(problem); }
  static bool takes_rows(const Problem&, const Args&) { return false; }

  std::string_view name() const noexcept override { return "cuda.warp_mma"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80")) {
      return Support::no(refused::kDevice, "needs sm_80");
    }
    if (problem.K > kMostWidth || problem.V > kMostWidth) {
      return Support::no(refused::kShape, str("takes K and V <= ", kMostWidth));
    }
    if (problem.T > kMostTokens) {
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    }
    if (!takes_rows(problem)) {
      return Support::no(refused::kAlignment,
                         "takes rows that start at multiples of 16 bytes and have whole ones");
    }
    if (problem.sequences() * problem.H > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has warps");
    }
    return Support::yes();
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return fastest_config(problem, device);
  }
  /// Nothing where chunks of wider tiles with gates of channels, which say nothing themselves, are expected
  /// to be the faster. Without such gates the wider tiles of cuda.chunk_wgmma take 1.2 to 1.4 times what
  /// they say of heads this narrow.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    constexpr double kBesideWiderTiles = 1.25;
    const double us = walks_us(problem, device, fastest_config(problem, device));
    if (problem.dtype == DType::kF32) return us;
    if ((problem.gates & (ops::kGateGk | ops::kGateGv)) == 0) return us / kBesideWiderTiles;
    if (channel_chunks_us(problem, device) < us) return std::nullopt;
    return us;
  }
  /// Whole sequences, and all segments that are not too many for what each adds to be kept.
  std::vector<Config> candidate_configs(const Problem& problem, const DeviceInfo&) const override {
    constexpr std::int64_t kMostOfSequence = 1024, kMostWalks = std::int64_t{1} << 17;
    std::vector<Config> configs{{.segment = 0}};
    for (const int segment : kSegmentTokens) {
      if (segment == 0 || segment >= problem.T) continue;
      const bool few = problem.T <= kMostOfSequence * segment &&
                       parts_of(problem, {.segment = segment}) * problem.H <= kMostWalks;
      if (few) configs.push_back({.segment = segment});
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return Workspace(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const Params params = params_of(problem, args, config, site.workspace.data());
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      if (config.segment > 0) {
        launch_segment_sums<T>(params, stream);
        launch_segment_starts(params, stream);
      }
      launch_outputs<T>(params, stream);
    });
  }
};

}  // namespace
}  // namespace attune::cuda::warp_mma

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_warp_mma() {
  return std::make_unique<WithStoredStates<WithPaddedRows<warp_mma::WarpMma>>>();
}
