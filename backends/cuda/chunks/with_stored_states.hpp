// A kernel of recurrent attention whose states are f32, made one that takes states of 16 bits: of
// those it is given copies (wide_states.hpp). Pools of f32 states it takes itself, but for packed
// sequences of one token (decode/single_tokens.hpp); and where there are no states, packed sequences,
// but for short ones if it leaves those out (pairs/short_sequences.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/wide_states.hpp"
#include "cuda/decode/single_tokens.hpp"
#include "cuda/pairs/expected_time.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// `Inner` has the alias Config, and takes what initial_states(), final_states() and
/// snapshots_view() say of its arguments. If it has walks_us(problem, device), which says what it takes
/// for any sequences, it walks chunked_sequences(), else walked_sequences().
template <class Inner>
class WithStoredStates final : public Inner {
 public:
  using Config = typename Inner::Config;
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionArgs;

  std::vector<std::string_view> features() const override {
    std::vector<std::string_view> names = Inner::features();
    names.insert(names.end(), {"pool", "initial_slots", "snapshot_every", "state=f16", "state=bf16",
                               "rounding=stochastic"});
    return names;
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    return Inner::supports(typical(problem), device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return Inner::fits(typical(problem), device, config);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return Inner::heuristic_config(typical(problem), device);
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const std::optional<double> own = Inner::expected_us(typical(problem), device);
    if constexpr (kMayLeaveShort) {
      if (own && pairs::most_left_out(problem) > 0) {
        return pairs::beside_forward_walk_us(problem, device, [&](const Problem& walked, double) {
          return Inner::walks_us(walked, device);
        });
      }
    }
    return own;
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    return Inner::candidate_configs(typical(problem), device);
  }
  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return copies_bytes(problem) + Inner::workspace_bytes(taken(problem), config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (is_copied(problem)) return run_on_copies(problem, args, config, site, stream);
    Inner::run(problem, args, config, site);
    run_left_out(problem, args, config, stream);
  }

 private:
  static constexpr bool kMayLeaveShort =
      requires(const Inner& inner, const Problem& problem, const DeviceInfo& device) {
    inner.walks_us(problem, device);
  };

  /// The sequences that the walk leaves out, behind the others, as outputs may be copied from where
  /// those write theirs.
  static void run_left_out(const Problem& problem, const Args& args, const Config& config,
                           cudaStream_t stream) {
    if constexpr (kMayLeaveShort) {
      if (pairs::most_left_out(problem) > 0)
        return pairs::launch_short_outputs(problem, args, stream);
    }
    if (!problem.pool || problem.N == 0) return;
    bool beside_walk = false;
    if constexpr (requires { Inner::leaves_single_tokens(problem, config); }) {
      beside_walk = Inner::leaves_single_tokens(taken(problem), config);
    }
    decode::launch_single_tokens(problem, args, beside_walk, stream);
  }

  void run_on_copies(const Problem& problem, const Args& args, const Config& config,
                     const LaunchSite& site, cudaStream_t stream) const {
    Args wide = args;
    const WideStates states(problem, wide, site.workspace.data());
    states.load(stream);
    Inner::run(taken(problem), wide, config,
               {.stream = site.stream, .workspace = site.workspace.subspan(copies_bytes(problem))});
    run_left_out(problem, args, config, stream);
    states.store(stream);
  }

  static bool is_copied(const Problem& problem) { return problem.state_dtype != DType::kF32; }
  static std::size_t copies_bytes(const Problem& problem) {
    return is_copied(problem) ? WideStates::bytes(problem) : 0;
  }
  static Problem taken(const Problem& problem) {
    return is_copied(problem) ? with_wide_states(problem) : problem;
  }
  /// What configs are chosen for: of sequences on a pool most may be single tokens, which are not
  /// the kernel's.
  static Problem typical(const Problem& problem) {
    constexpr std::int64_t kTokensOfPrompt = 512;
    Problem seen = taken(problem);
    if (seen.pool && seen.N > 0) {
      seen.N = std::clamp<std::int64_t>(seen.T / kTokensOfPrompt, 1, seen.N);
    }
    return seen;
  }
};

}  // namespace attune::cuda
