// What kernels choose their configs by: values of axes, looked up by size, and how much work a
// problem is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <attune/core/axis_values.hpp>
#include <attune/core/config_axes.hpp>
#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cpu::simd {

/// About half of `value`, or the smallest there is.
template <class Config>
int half_of(int Config::*member, int value) {
  return axis_value_for(member, value / 2);
}

namespace detail {

template <std::size_t kAxes, class Config, class Visit>
void visit_points(Config& config, Visit&& visit) {
  if constexpr (kAxes == 0) {
    if (attune::detail::compiles(config)) visit(std::as_const(config));
  } else {
    constexpr auto kAxis = std::get<kAxes - 1>(Config::axes());
    for (const auto value : kAxis.values) {
      config.*(kAxis.member) = value;
      visit_points<kAxes - 1>(config, visit);
    }
  }
}

}  // namespace detail

/// Calls visit(config) for each of all_configs(), in its order. Axes span tens of thousands of
/// points, of which a problem tries some fifty: they are not written down.
template <class Config, class Visit>
void for_each_config(Visit&& visit) {
  Config config{};
  detail::visit_points<std::tuple_size_v<decltype(Config::axes())>>(config, visit);
}

// ---- threads and tiles ----

/// Threads that have something to do: no more than cores, nor than `work` is worth, at
/// `work_per_thread`: what keeps one busy ten times longer than it takes to wake it.
inline std::int64_t useful_threads(double work, double work_per_thread, const DeviceInfo& device) {
  const double worth = 1 + work / work_per_thread;
  return static_cast<std::int64_t>(std::min<double>(device.cores, worth));
}

/// The whole width of V in one task, as the key side is then prepared once and a state read as it
/// lies; narrower tiles only where there are fewer tasks than useful threads.
template <class Config, class TaskCount>
void choose_tile_v(Config& config, std::int64_t value_dim, std::int64_t useful,
                   const TaskCount& task_count) {
  config.tile_v = axis_value_for(&Config::tile_v, value_dim);
  while (task_count(config) < useful) {
    const int narrower = half_of(&Config::tile_v, config.tile_v);
    if (narrower == config.tile_v) break;
    config.tile_v = narrower;
  }
}

/// Whether the value of an axis is `full` or half of it.
template <class Config>
bool full_or_half(const Config& config, int Config::*member, int full) {
  return config.*member == full || config.*member == half_of(member, full);
}

// ---- sizes of a problem ----

/// Inputs and outputs above this come from memory, or from pages that no TLB remembers. Rows are
/// fetched ahead then, and outputs written past the caches.
inline constexpr double kCachesBytes = 32.0 * 1024 * 1024;

inline std::int64_t tokens_per_sequence(const ops::RecurrentAttentionProblem& problem) {
  return problem.N > 0 ? problem.T / problem.N : problem.T;
}

inline bool exceeds_caches(const ops::RecurrentAttentionProblem& problem) {
  return ops::RecurrentAttention::bytes(problem) > kCachesBytes;
}

/// Whether a backward pass has too many tensors to leave its gradients in the caches of `threads`
/// for whoever reads them next. Past the caches, their lines are not read before they are written:
/// a tenth of the time, on one core of a Sapphire Rapids as on 16.
inline bool streams_gradients(const ops::RecurrentAttentionProblem& problem,
                              const DeviceInfo& device, int threads) {
  constexpr double kMinCache = 1024.0 * 1024.0;  // where it is not known
  const double cache = std::max(static_cast<double>(device.l2_bytes), kMinCache);
  return ops::RecurrentAttentionBackward::bytes(problem) > cache * threads;
}

/// Tokens between two of the states that gate gradients are summed up anew from: `least`, a power
/// of two, or more, so that no more states are kept than there are tokens between two.
inline std::int64_t tokens_between_states(std::int64_t least, std::int64_t tokens) {
  std::int64_t between = least;
  while (between * between < tokens) between *= 2;
  return between;
}

}  // namespace attune::cpu::simd
