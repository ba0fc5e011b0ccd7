// What a walk over a few tokens takes: launches and stores of the state more than steps; loads of it are
// hidden. Fitted to the times of 1,169 configs of 159 problems on an H100.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/fused_recurrent/fused_recurrent_config.hpp"

namespace attune::cuda::fused_recurrent {

/// Below this many tokens a sequence, on average.
inline constexpr std::int64_t kShortWalk = 24;

constexpr bool is_short(const WalkExtents& extents) {
  return extents.tokens < kShortWalk && !extents.final_only;
}

namespace short_costs {  // microseconds
inline constexpr double kLaunch = 2.09, kBlock = 3.25;
inline constexpr double kStepOfRow = 0.0153;  // of a token, for each row a lane has
/// Of f32 more, where both sides' channels have gates: an exponential for every element.
inline constexpr double kExponentials = 19.4;
inline constexpr double kStagedChannel = 0.000743;  // of a token, for each row and column staged
inline constexpr double kStoreOfRow = 0.0891;  // of a state that is wanted, for each row a lane has
inline constexpr double kOddRows = 3.06;       // of that where states' rows are not of whole quads
inline constexpr double kBusy = 0.406;  // share that blocks on all other multiprocessors slow one
inline constexpr double kPlanes = 2.7, kPlaneBytes = 8, kBytesPerUs = 2.5e6;
}  // namespace short_costs

/// In microseconds, without segments. `resident`: blocks on a multiprocessor at once.
inline double short_walk_us(const WalkShape& shape, const WalkExtents& extents,
                            const DeviceInfo& device, std::int64_t resident) {
  using namespace short_costs;
  const bool both = extents.gates == (kRowGates | kColumnGates);
  const double gates = extents.gates == 0 ? 0 : both ? 2 : 1;
  const double each = both && extents.exact ? 1 + kExponentials : 1;
  const auto rows = static_cast<double>(std::min<std::int64_t>(shape.rows(), extents.rows));
  const auto columns =
      static_cast<double>(std::min<std::int64_t>(shape.columns(), extents.columns));
  const double step =
      kStepOfRow * each * shape.rows_per_lane + kStagedChannel * (rows * (1 + gates / 2) + columns);
  const double of_state = extents.writes_state ? kStoreOfRow * shape.rows_per_lane *
                                                     (extents.columns % 4 == 0 ? 1 : kOddRows)
                                               : 0;
  const auto block_us = [&](std::int64_t tokens) {
    return kBlock + static_cast<double>(tokens) * step + of_state;
  };
  const std::int64_t planes = row_blocks(shape, extents.rows);
  const double per_core =
      static_cast<double>(extents.heads * planes * column_blocks(shape, extents.columns)) /
      std::max(device.cores, 1);
  const double rounds = std::max(std::ceil(per_core / static_cast<double>(resident)), 1.0) *
                        (1 + kBusy * std::min(per_core, 1.0));
  const std::int64_t tokens = std::max<std::int64_t>(extents.tokens, 1);
  double us = kLaunch + std::max(rounds * block_us(tokens), block_us(extents.longest));
  if (planes > 1) {
    const auto elements =
        static_cast<double>(extents.heads * tokens * extents.columns * (planes + 1));
    us += kPlanes + kPlaneBytes * elements / kBytesPerUs;
  }
  return us;
}

/// Of as many blocks on a multiprocessor as fit.
double short_walk_us(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device);

}  // namespace attune::cuda::fused_recurrent
