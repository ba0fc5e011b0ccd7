// What a pass's sides are, as far as a problem says before there are tensors.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/walks/walk.hpp"
#include "cuda/window/expected_time.hpp"
#include "cuda/window/window.hpp"

namespace attune::cuda::window {

using AttentionProblem = ops::RecurrentAttentionProblem;

inline constexpr std::int32_t kSharedGates = ops::kGateG | ops::kGateGamma;

/// What is known of a side before there are tensors.
inline Side value_side(const AttentionProblem& problem, bool backward, bool several) {
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
inline Side key_side(const AttentionProblem& problem, bool several) {
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
inline bool has_several(const AttentionProblem& problem, int tokens) { return problem.T > tokens; }

/// Blocks that have a head's keys.
inline std::int64_t key_parts(const AttentionProblem& problem, int tokens) {
  return tokens == 1 ? 1 : ceil_div(problem.K, kOwn);
}

/// Whether a gradient of gamma may be a sum of what several blocks have.
inline bool adds_up_gamma(const AttentionProblem& problem, int tokens) {
  const bool wanted = (problem.gates & ops::kGateGamma) != 0;
  return wanted && (tokens > 1 || problem.sequences() > 1);
}

/// The sides of a pass, and how many.
inline std::pair<std::array<PassSide, 2>, int> sides_of(const AttentionProblem& problem,
                                                        bool backward, int tokens) {
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

}  // namespace attune::cuda::window
