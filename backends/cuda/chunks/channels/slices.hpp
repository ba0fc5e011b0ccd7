// How the kernels with a decay for every channel cut more key channels than a block takes: into slices,
// each of which makes a share of the outputs, side by side in one launch or one launch after the other.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/chunks/padded_rows.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::channels {

using Problem = ops::RecurrentAttentionProblem;

inline Gated gated_of(const Problem& problem) {
  const bool keys = (problem.gates & ops::kGateGk) != 0;
  const bool values = (problem.gates & ops::kGateGv) != 0;
  return keys && values ? Gated::kBoth : keys ? Gated::kKeys : Gated::kValues;
}

/// Whether sequences have fewer tokens, on average.
inline bool is_short(const Problem& problem, std::int64_t tokens = 1024) {
  return problem.T < tokens * std::max<std::int64_t>(problem.N, 1);
}

inline constexpr int kMostOfOneSlice = 128;  // key channels that are not cut

struct KeySlices {
  int keys = 0;               // channels of a slice, where there are several
  int side_by_side = 1;       // slices of a launch
  std::int64_t launches = 1;  // one after the other
};

/// Slices of so many key channels that share a launch; 1 where they do not. They do where they are whole
/// and a device has a multiprocessor for a block of each. States that are stored on the way, or in slots,
/// are of launches of their own. A call with copies has the K of its states.
inline int slices_of_launch(const Problem& problem, int tile_v, int keys) {
  constexpr std::int64_t kMultiprocessors = 132;  // workspaces do not ask which device
  const std::int64_t all = padded_channels(problem.K);
  if (all % keys != 0 || problem.pool || problem.snapshot_every > 0) return 1;
  const std::int64_t count = all / keys;
  const std::int64_t blocks =
      problem.sequences() * problem.H * value_tiles(problem, tile_v) * count;
  return blocks <= kMultiprocessors ? static_cast<int>(count) : 1;
}

/// Of blocks of tile_v value channels, `is_wide`: more than the fewest. As few slices as blocks have room
/// for, as many as share a launch where sequences are short: a chunk then takes less, and from so many
/// tokens on more than the sum of outputs takes.
inline KeySlices key_slices_of(const Problem& problem, Products products, int tile_v,
                               bool is_wide) {
  constexpr int kMostOfWide = 192;  // two slices of wide blocks
  constexpr std::int64_t kTokensOfSum = 128;
  const bool is_cut = problem.K > kMostKeys;
  if (problem.K > kMostOfOneSlice && is_short(problem) &&
      (is_cut || !is_short(problem, kTokensOfSum))) {
    for (const int keys : {kMostOfOneSlice, kPanelChannels}) {
      const int slices = slices_of_launch(problem, tile_v, keys);
      if (slices > 1) return {.keys = keys, .side_by_side = slices};
    }
  }
  if (!is_cut) return {.keys = kMostKeys};
  const bool fits_wide = products == Products::kWgmma && is_wide &&
                         gated_of(problem) == Gated::kKeys && problem.K <= 2 * kMostOfWide;
  const int keys = fits_wide ? kMostOfWide : kMostKeys;
  for (const int each : {keys, kMostOfWide}) {
    const int slices = slices_of_launch(problem, tile_v, each);
    if (slices > 1) return {.keys = each, .side_by_side = slices};
  }
  return {.keys = keys, .launches = ceil_div(problem.K, keys)};
}

}  // namespace attune::cuda::channels
