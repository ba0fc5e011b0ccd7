// What a walk over a few tokens takes: loads and stores of the state and launches more than steps.
// Fitted to the times of 1175 configs of 137 problems on an H100.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/fused_recurrent/fused_recurrent_config.hpp"

namespace attune::cuda::fused_recurrent {

/// Below this many tokens a sequence, on average.
inline constexpr std::int64_t kShortWalk = 24;

constexpr bool is_short(const WalkExtents& extents) {
  return extents.tokens < kShortWalk && !extents.final_only;
}

namespace short_costs {  // microseconds
inline constexpr double kLaunch = 1.17, kBlock = 5.28;
inline constexpr double kStepOfRow = 0.0268;  // of a token, for each row a lane has
inline constexpr double kBothGates = 0.85;    // more of that where both sides' channels have gates
inline constexpr double kBothGatesExact = 11.8;   // and in f32: an exponential for every element
inline constexpr double kStagedChannel = 4.4e-4;  // of a token, for each row and column staged
inline constexpr double kStateOfRow = 0.068;  // to load or store the state, for each row a lane has
inline constexpr double kOddRows = 3.5;       // of that where states' rows are not of whole quads
inline constexpr double kWarp = 0.0104;       // share that each further warp slows the others
inline constexpr double kWarpsForFree = 8;
inline constexpr double kPlanes = 2.7, kPlaneBytes = 8, kBytesPerUs = 2.5e6;
}  // namespace short_costs

/// In microseconds, without segments. `resident`: blocks on a multiprocessor at once.
inline double short_walk_us(const WalkShape& shape, const WalkExtents& extents,
                            const DeviceInfo& device, std::int64_t resident) {
  using namespace short_costs;
  const bool both = extents.gates == (kRowGates | kColumnGates);
  const double gates = extents.gates == 0 ? 0 : both ? 2 : 1;
  const double each = 1 + (both ? kBothGates + (extents.exact ? kBothGatesExact : 0) : 0);
  const auto rows = static_cast<double>(std::min<std::int64_t>(shape.rows(), extents.rows));
  const auto columns =
      static_cast<double>(std::min<std::int64_t>(shape.columns(), extents.columns));
  const double step =
      kStepOfRow * each * shape.rows_per_lane + kStagedChannel * (rows * (1 + gates / 2) + columns);
  const double of_state = kStateOfRow * (extents.columns % 4 == 0 ? 1 : kOddRows);
  const auto block_us = [&](std::int64_t tokens) {
    return kBlock + static_cast<double>(tokens) * step +
           of_state * extents.states * shape.rows_per_lane;
  };
  const std::int64_t planes = row_blocks(shape, extents.rows);
  const double per_core =
      static_cast<double>(extents.heads * planes * column_blocks(shape, extents.columns)) /
      std::max(device.cores, 1);
  const double together = std::clamp(per_core, 1.0, static_cast<double>(resident));
  const double warps = together * (shape.state_warps() + kStagingWarps);
  const double rounds = std::max(per_core / static_cast<double>(resident), 1.0) *
                        (1 + kWarp * std::max(warps - kWarpsForFree, 0.0));
  const std::int64_t tokens = std::max<std::int64_t>(extents.tokens, 1);
  double us = kLaunch + std::max(rounds * block_us(tokens), block_us(extents.longest));
  if (planes > 1) {
    const auto elements =
        static_cast<double>(extents.heads * tokens * extents.columns * (planes + 1));
    us += kPlanes + kPlaneBytes * elements / kBytesPerUs;
  }
  return us;
}

}  // namespace attune::cuda::fused_recurrent
