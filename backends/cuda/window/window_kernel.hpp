// What the kernels of both passes have alike: configs, what they take and what they are expected to.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/config_axes.hpp>
#include <attune/core/kernel.hpp>

#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/window/sides.hpp"

namespace attune::cuda::window {

/// Of either pass.
template <class KernelOp>
struct WindowConfig {
  using Op = KernelOp;
  static constexpr bool kBackward = !std::is_same_v<Op, ops::RecurrentAttention>;
  int tokens = 4;  // of a window; 1: single tokens, whose gradients one pass over states makes
  int teams = 1;   // of a block, 32 channels each at a time
  int warps = 8;   // of a team
  int tiles = 1;   // of 32 channels that a block has in all
  friend constexpr bool operator==(const WindowConfig&, const WindowConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("tokens", &WindowConfig::tokens, {1, 4, 8, 16}),
                      launch_axis("teams", &WindowConfig::teams, {1, 2, 4, 8}),
                      launch_axis("warps", &WindowConfig::warps, {1, 2, 4, 8, 16}),
                      launch_axis("tiles", &WindowConfig::tiles, {1, 2, 4, 8, 16})};
  }
};

template <class Config>
std::size_t bytes_of_block(const AttentionProblem& problem, const Config& config) {
  const auto [sides, count] = sides_of(problem, Config::kBackward, config.tokens);
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes = std::max(bytes, shared_bytes(config.tokens, config.teams, config.warps, sides[i].side));
  }
  return bytes;
}

/// What a config is expected to take.
template <class Config>
double config_us(const AttentionProblem& problem, const DeviceInfo& device, const Config& config) {
  const auto [sides, count] = sides_of(problem, Config::kBackward, config.tokens);
  const LikelyLengths lengths(problem);
  const std::int32_t gates = problem.gates;
  const std::int64_t states = (problem.reads_states() ? (Config::kBackward ? 2 : 1) : 0) +
                              (problem.writes_states() ? 1 : 0);
  const std::int64_t walks = problem.sequences() * problem.H;
  const std::int64_t state_bytes =
      std::int64_t{sizeof(float)} * walks * problem.K * problem.V * states;
  const bool sums = problem.H != problem.Hkv || adds_up_gamma(problem, config.tokens) ||
                    ((gates & ops::kGateG) != 0 && key_parts(problem, config.tokens) > 1);
  if (config.tokens == 1) {
    const auto rows = static_cast<int>(problem.K), columns = static_cast<int>(problem.V);
    const int blocks =
        device.has("sm_90") ? blocks_of_token(rows, columns, walks, device.cores) : 1;
    const TokenShares shares(rows, columns, blocks);
    return single_tokens_us({.walks = walks,
                             .shares = shares,
                             .h0 = problem.h0,
                             .ht = problem.ht,
                             .sums = sums,
                             .state_bytes = state_bytes},
                            device);
  }
  constexpr std::int64_t kFloatsOfSector = 8;
  Pass pass{.walks = walks,
            .mean = lengths.mean,
            .unlike = problem.N > 1 && !problem.pool,
            .may_vary = problem.N > 1 && problem.T > config.tokens,
            .tokens = config.tokens,
            .teams = config.teams,
            .warps = config.warps,
            .tiles = config.tiles,
            .backward = Config::kBackward,
            .sums = Config::kBackward && sums,
            .state_bytes = state_bytes,
            .shares_sectors = problem.V % kFloatsOfSector != 0};
  return lengths.average([&](double longest) {
    pass.longest = longest;
    return pass_us(pass, std::span(sides.data(), static_cast<std::size_t>(count)),
                   bytes_of_block(problem, config), device);
  });
}

/// Sequences are short on average. A longer one is walked over, a window behind the other.
inline Support takes(const AttentionProblem& problem, const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  if (!device.has("sm_80")) return Support::no(refused::kDevice, "needs compute capability 8.0");
  if (problem.snapshot_every > 0) return Support::no(refused::kShape, "keeps no snapshots");
  if (const Support few = has_few_tokens(problem); !few) return few;
  if (std::max(problem.K, problem.V) > kMostChannels) {
    return Support::no(refused::kShape, str("takes K and V up to ", kMostChannels));
  }
  return Support::yes();
}

template <class Args>
Params params_of(const AttentionProblem& problem, const Args& args) {
  Params p;
  p.sequences = sequences_view(args.cu_seqlens, problem.T);
  p.sequence_count = problem.sequences();
  p.batches = problem.B;
  p.heads = problem.H;
  p.heads_per_kv = problem.H / problem.Hkv;
  p.descending = problem.reverse;
  p.scale = static_cast<float>(args.scale);
  p.shared_gate = gate_view(args.g);
  p.gamma = decay_view(args.gamma, problem.H);
  return p;
}

/// A state as key channels' blocks have it is as it is; value channels are along the others there.
template <class View>
View with_own_along_k(View view, bool of_keys) {
  if (!of_keys) std::swap(view.k, view.v);
  return view;
}

/// What both kernels have alike.
template <class Op>
class WindowKernel : public Kernel<WindowConfig<Op>> {
 public:
  using Config = WindowConfig<Op>;

  int version() const noexcept override { return Config::kBackward ? 2 : 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const AttentionProblem& problem, const DeviceInfo& device) const override {
    if (const Support taken = takes(problem, device); !taken) return taken;
    if (!Config::kBackward && leaves_to_chunks(problem)) {
      return Support::no(refused::kShape, "chunks, or token by token, are faster forward");
    }
    return fits(problem, device, Config{});
  }
  Support fits(const AttentionProblem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.tokens == 1) {
      const bool single = problem.T == 1 && problem.N <= 1 && (problem.h0 || problem.ht);
      if (Config::kBackward && single && config == kSingleTokens) return Support::yes();
      return Support::no(refused::kConfig, "tokens=1: for gradients of single tokens with states");
    }
    if (config.teams * config.warps > kMostWarps || config.teams > config.tiles) {
      return Support::no(refused::kConfig, str("teams=", config.teams, ": at most tiles, and ",
                                               kMostWarps, " warps in all"));
    }
    if (config.tiles > 1 && kOwn * config.tiles / 2 >= widest(problem)) {
      return Support::no(refused::kConfig, str("tiles=", config.tiles, ": there are fewer"));
    }
    const std::size_t bytes = bytes_of_block(problem, config);
    if (bytes <= static_cast<std::size_t>(device.l1_bytes)) return Support::yes();
    return Support::no(
        refused::kMemory,
        str("needs ", bytes, " bytes of shared memory, a block has ", device.l1_bytes));
  }
  Config heuristic_config(const AttentionProblem& problem,
                          const DeviceInfo& device) const override {
    const std::vector<Config> configs = candidate_configs(problem, device);
    return *std::ranges::min_element(
        configs, {}, [&](const Config& config) { return config_us(problem, device, config); });
  }
  std::optional<double> expected_us(const AttentionProblem& problem,
                                    const DeviceInfo& device) const override {
    if (!Config::kBackward && leaves_to_chunks(problem)) return std::nullopt;
    return config_us(problem, device, heuristic_config(problem, device));
  }
  /// Windows of as many tokens as sequences have, on average, or of half.
  std::vector<Config> candidate_configs(const AttentionProblem& problem,
                                        const DeviceInfo& device) const override {
    const std::int64_t mean = problem.T / std::max<std::int64_t>(problem.N, 1);
    int most = 4;
    while (most < 16 && most < mean) most *= 2;
    std::vector<Config> configs;
    if (fits(problem, device, kSingleTokens)) configs.push_back(kSingleTokens);
    for (int tokens = most; tokens >= std::max(most / 2, 4); tokens /= 2) {
      for (const int warps : {2, 4, 8, 16}) {
        // Few warps are faster where all of a block have a window each, not where one is long.
        if (warps < 4 && (!Config::kBackward || problem.N > 1)) continue;
        for (int teams = 1; teams <= std::min(warps, 8); teams *= 2) {
          for (int tiles = teams; tiles <= std::min(4 * teams, 16); tiles *= 2) {
            const Config config{tokens, teams, warps / teams, tiles};
            if (fits(problem, device, config)) configs.push_back(config);
          }
        }
      }
    }
    if (configs.empty()) configs.push_back(Config{});
    return configs;
  }

 private:
  static constexpr Config kSingleTokens{.tokens = 1};

  /// Channels of the side with the most that are a block's.
  static std::int64_t widest(const AttentionProblem& problem) {
    return Config::kBackward ? std::max(problem.K, problem.V) : problem.V;
  }
};

}  // namespace attune::cuda::window
