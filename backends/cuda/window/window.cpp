#include "cuda/window/window.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
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
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/walk.hpp"
#include "cuda/window/expected_time.hpp"
#include "cuda/window/sums.hpp"

namespace attune::cuda::window {
namespace {

using AttentionProblem = ops::RecurrentAttentionProblem;
using ForwardArgs = ops::RecurrentAttentionArgs;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

constexpr std::int32_t kSharedGates = ops::kGateG | ops::kGateGamma;

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

/// What is known of a side before there are tensors.
Side value_side(const AttentionProblem& problem, bool backward, bool several) {
  Side side;
  side.channels = static_cast<int>(problem.V);
  side.other_channels = static_cast<int>(problem.K);
  side.wants_gates = backward && (problem.gates & ops::kGateGv) != 0;
  side.wants_x = !backward || side.wants_gates;
  side.keeps_state = backward ? side.wants_x && (problem.h0 || several)
                              : problem.reads_states() || problem.writes_states() || several;
  side.keeps_gradient = backward && (problem.h0 || problem.ht || several);
  return side;
}
Side key_side(const AttentionProblem& problem, bool several) {
  Side side;
  side.has_shared_decays = true;
  side.channels = static_cast<int>(problem.K);
  side.other_channels = static_cast<int>(problem.V);
  side.wants_gates = (problem.gates & (kSharedGates | ops::kGateGk)) != 0;
  side.keeps_state = problem.h0 || several;
  side.keeps_gradient = problem.ht || several;
  return side;
}

/// Whether a sequence may have more than one window.
bool has_several(const AttentionProblem& problem, int tokens) { return problem.T > tokens; }

/// Blocks that have a head's keys.
std::int64_t key_parts(const AttentionProblem& problem, int tokens) {
  return tokens == 1 ? 1 : ceil_div(problem.K, kOwn);
}

/// Whether a gradient of gamma may be a sum of what several blocks have.
bool adds_up_gamma(const AttentionProblem& problem, int tokens) {
  const bool wanted = (problem.gates & ops::kGateGamma) != 0;
  return wanted && (tokens > 1 || problem.sequences() > 1);
}

/// The sides of a pass, and how many.
std::pair<std::array<PassSide, 2>, int> sides_of(const AttentionProblem& problem, bool backward,
                                                 int tokens) {
  const bool several = has_several(problem, tokens);
  const auto has = [&](std::int32_t gates) { return (problem.gates & gates) != 0; };
  ConstTokenView given;
  given.data = &problem;  // any
  const auto with = [&](Side side, bool other_gates, int read_states, bool writes_state) {
    if (other_gates) side.other_gate.rows = given;
    return PassSide{side, other_gates, read_states, writes_state};
  };
  const Side value = value_side(problem, backward, several);
  if (!backward) {
    const int read_states = problem.reads_states() ? 1 : 0;
    return {{with(value, has(ops::kGateGk), read_states, problem.writes_states()), {}}, 1};
  }
  const auto read_states = [&](bool state, bool gradient) {
    return (state && problem.h0 ? 1 : 0) + (gradient && problem.ht ? 1 : 0);
  };
  const PassSide keys =
      with(key_side(problem, several), has(ops::kGateGv), read_states(true, true), false);
  return {{keys, with(value, has(ops::kGateGk), read_states(value.wants_x, true), problem.h0)}, 2};
}

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
Support takes(const AttentionProblem& problem, const DeviceInfo& device) {
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

class Window : public WindowKernel<ops::RecurrentAttention> {
 public:
  std::string_view name() const noexcept override { return "cuda.window"; }

  void run(const AttentionProblem& problem, const ForwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    Params p = params_of(problem, args);
    p.sequences = walked_sequences(args, problem.T);
    p.tiles_per_block = config.tiles;
    p.teams = config.teams;
    p.warps = config.warps;
    Side& side = p.sides[0];
    side = value_side(problem, false, has_several(problem, config.tokens));
    side.write = token_view(args.v);
    side.other_read = token_view(args.q);
    side.other_write = token_view(args.k);
    side.gate = gate_view(args.gv);
    side.other_gate = gate_view(args.gk);
    side.initial = with_own_along_k(initial_states(args), false);
    side.final = with_own_along_k(final_states(args), false);
    side.x = token_view(args.o);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      launch_forward<T>(p, config.tokens, static_cast<cudaStream_t>(site.stream));
    });
  }
};

/// The memory of a backward pass, of which none is there while its bytes are counted.
struct BackwardMemory {
  BackwardMemory(const AttentionProblem& problem, int tokens, std::byte* memory) : parts(memory) {
    const std::int64_t rows = problem.B * problem.T * problem.H;
    const bool several = has_several(problem, tokens);
    const std::int32_t gates = problem.gates;
    const std::int64_t tiles = key_parts(problem, tokens);
    if (problem.H != problem.Hkv) {
      dk_of_heads = floats(rows * problem.K);
      dv_of_heads = floats(rows * problem.V);
    }
    if ((gates & ops::kGateG) != 0 && tiles > 1) dg_of_tiles = floats(rows * tiles);
    if (adds_up_gamma(problem, tokens))
      gamma_terms = floats(problem.sequences() * problem.H * tiles);
    if (several && (gates & (kSharedGates | ops::kGateGk)) != 0)
      key_terms = floats(rows * problem.K);
    if (several && (gates & ops::kGateGv) != 0) value_terms = floats(rows * problem.V);
  }
  float* floats(std::int64_t count) {
    return parts.take<float>(count * static_cast<std::int64_t>(sizeof(float)));
  }

  WorkspaceParts parts;
  float* dk_of_heads = nullptr;
  float* dv_of_heads = nullptr;
  float* dg_of_tiles = nullptr;
  float* gamma_terms = nullptr;
  float* key_terms = nullptr;
  float* value_terms = nullptr;
};

class WindowBackward final : public WindowKernel<ops::RecurrentAttentionBackward> {
 public:
  std::string_view name() const noexcept override { return "cuda.window.backward"; }

  std::size_t workspace_bytes(const AttentionProblem& problem,
                              const Config& config) const override {
    return BackwardMemory(problem, config.tokens, nullptr).parts.used();
  }

  void run(const AttentionProblem& problem, const BackwardArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const BackwardMemory memory(problem, config.tokens, site.workspace.data());
    const bool several = has_several(problem, config.tokens);
    Params p = params_of(problem, args);
    p.tiles_per_block = config.tiles;
    p.teams = config.teams;
    p.warps = config.warps;
    p.side_count = 2;
    p.sides[0] = keys(key_side(problem, several), args, memory);
    p.sides[1] = values(value_side(problem, true, several), args, memory);
    Sums left = sums(p, args, memory, key_parts(problem, config.tokens));
    if (config.tokens == 1 && args.dgamma) place_gamma(p, left.gamma);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      if (config.tokens == 1) {
        launch_single_tokens<T>(p, stream);
      } else {
        launch_backward<T>(p, config.tokens, stream);
      }
      launch_sums<T>(left, stream);
    });
  }

 private:
  static Side keys(Side side, const BackwardArgs& args, const BackwardMemory& memory) {
    side.read = token_view(args.q);
    side.write = token_view(args.k);
    side.other_read = token_view(args.d_o);
    side.other_write = token_view(args.v);
    side.gate = gate_view(args.gk);
    side.other_gate = gate_view(args.gv);
    side.initial = state_view(args.initial_state);
    side.final_gradient = state_view(args.dfinal_state);
    side.x = token_view(args.dq);
    side.y = token_view(args.dk);
    side.y_of_heads = memory.dk_of_heads;
    side.gate_gradient = token_view(args.dgk);
    side.shared_gradient = token_view(args.dg);
    side.shared_terms = args.dg ? memory.dg_of_tiles : nullptr;
    side.gamma_terms = args.dgamma ? memory.gamma_terms : nullptr;
    side.read_terms = memory.key_terms;
    return side;
  }

  static Side values(Side side, const BackwardArgs& args, const BackwardMemory& memory) {
    side.read = token_view(args.d_o);
    side.write = token_view(args.v);
    side.other_read = token_view(args.q);
    side.other_write = token_view(args.k);
    side.gate = gate_view(args.gv);
    side.other_gate = gate_view(args.gk);
    side.initial = with_own_along_k(state_view(args.initial_state), false);
    side.final_gradient = with_own_along_k(state_view(args.dfinal_state), false);
    side.initial_gradient = with_own_along_k(state_view(args.dinitial_state), false);
    side.y = token_view(args.dv);
    side.y_of_heads = memory.dv_of_heads;
    side.gate_gradient = token_view(args.dgv);
    side.read_terms = memory.value_terms;
    return side;
  }

  /// Single tokens: where a block's sum is all of a gradient, it is written as such, and is a term
  /// of it elsewhere.
  static void place_gamma(Params& p, GammaGradient& gamma) {
    if (gamma.shared() && p.sequence_count > 1) {
      p.gamma_gradient = {.data = p.sides[0].gamma_terms, .sequence = p.heads, .head = 1};
    } else {
      p.gamma_gradient = gamma.out;
      p.gamma_sign = gamma.sign;
      gamma = {};  // nothing is left to add up
    }
  }

  static Sums sums(const Params& p, const BackwardArgs& args, const BackwardMemory& memory,
                   std::int64_t key_parts) {
    const auto planes = [&](const float* from, std::int64_t columns, const TensorView& out) {
      return PlaneSumParams{.planes = from,
                            .batches = p.batches,
                            .tokens = p.sequences.tokens,
                            .heads = p.heads,
                            .columns = columns,
                            .group = p.heads_per_kv,
                            .out = token_view(out),
                            .sequences = p.sequences,
                            .sequence_count = p.sequence_count};
    };
    Sums left;
    left.keys = planes(memory.dk_of_heads, p.sides[0].channels, args.dk);
    left.values = planes(memory.dv_of_heads, p.sides[1].channels, args.dv);
    if (args.dg) {
      left.shared = planes(memory.dg_of_tiles, 1, *args.dg);
      left.shared.plane_count = key_parts;
      left.shared.group = 1;
    }
    if (args.dgamma) {
      const bool negated = args.gamma.source == ops::ConstantDecay::Source::kSlopes;
      left.gamma = {.terms = memory.gamma_terms,
                    .out = {.data = static_cast<float*>(args.dgamma->data),
                            .sequence = args.dgamma->stride(0),
                            .head = args.dgamma->stride(1)},
                    .sign = negated ? -1.0F : 1.0F,
                    .heads = p.heads,
                    .sequences = p.sequences,
                    .sequence_count = p.sequence_count};
      left.gamma_terms = key_parts;
    }
    return left;
  }
};

}  // namespace
}  // namespace attune::cuda::window

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_window() {
  return std::make_unique<WithStoredStates<window::Window>>();
}
std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_window_backward() {
  return std::make_unique<window::WindowBackward>();
}
