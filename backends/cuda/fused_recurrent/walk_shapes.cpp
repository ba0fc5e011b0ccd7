// Which shapes and numbers of segments walks have, by what they are expected to take.
#include <algorithm>
#include <utility>

#include "cuda/fused_recurrent/short_walks.hpp"
#include "cuda/runtime/dispatch.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

/// Calls visit(shape) for every split of a block's rows over lanes and warps, those of the most
/// rows a lane first.
template <class Visit>
void for_each_row_split(Visit&& visit) {
  constexpr auto kRowsPerLane = kAxisValues<&FusedRecurrentConfig::rows_per_lane>;
  for (auto rows = kRowsPerLane.rbegin(); rows != kRowsPerLane.rend(); ++rows) {
    for (const int row_warps : kAxisValues<&FusedRecurrentConfig::row_warps>) {
      if (row_warps <= max_state_warps(*rows)) visit(WalkShape{*rows, row_warps, 1, 1});
    }
  }
}

/// The fewest rows a block may have to hold all `rows`, or as many as it can.
int rows_for(std::int64_t rows) {
  int best = 0;
  for_each_row_split([&](const WalkShape& split) {
    const bool holds = split.rows() >= rows;
    const bool best_holds = best >= rows;
    if (holds ? (!best_holds || split.rows() < best) : (!best_holds && split.rows() > best)) {
      best = split.rows();
    }
  });
  return best;
}

/// 32 columns a warp, no more than there are.
int max_column_warps(const WalkExtents& extents) {
  constexpr int kMax = std::ranges::max(kAxisValues<&FusedRecurrentConfig::column_warps>);
  int warps = 1;
  while (warps < kMax && warps * kColumnsPerWarp < extents.columns) warps *= 2;
  return warps;
}

bool fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  return static_cast<bool>(walk_fits(shape, extents, device));
}

/// With as many staged tokens as leave room for two blocks on a multiprocessor.
WalkShape with_tokens(WalkShape shape, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr auto kTokens = kAxisValues<&FusedRecurrentConfig::tokens>;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  shape.tokens = std::ranges::max(kTokens);
  const auto bytes = [&] {
    return static_cast<std::int64_t>(walk_shared_bytes(shape, extents.gates, extents.exact));
  };
  while (shape.tokens > std::ranges::min(kTokens) && bytes() > device.l1_bytes / 2 - kReserved) {
    shape.tokens /= 2;
  }
  return shape;
}

std::int64_t blocks_of(const WalkShape& shape, const WalkExtents& extents) {
  return extents.heads * row_blocks(shape, extents.rows) * column_blocks(shape, extents.columns);
}

/// Blocks that run on a multiprocessor at once.
std::int64_t blocks_per_core(const WalkShape& shape, const WalkExtents& extents,
                             const DeviceInfo& device) {
  constexpr std::int64_t kRegisters = 65536;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  const std::int64_t threads = (shape.state_warps() + kStagingWarps) * std::int64_t{32};
  const int each = shape.rows_per_lane > 16 ? 255 : shape.rows_per_lane > 8 ? 128 : 96;
  const auto bytes =
      static_cast<std::int64_t>(walk_shared_bytes(shape, extents.gates, extents.exact));
  return std::max<std::int64_t>(
      std::min(kRegisters / (threads * each), device.l1_bytes / (bytes + kReserved)), 1);
}

std::int64_t tokens_of_segment(const WalkExtents& extents, int segments) {
  if (segments == 1) return extents.tokens;
  const std::int64_t multiple = extents.segment_multiple;
  return ceil_div(ceil_div(extents.tokens, segments), multiple) * multiple;
}

/// About how long a walk takes, fitted to an H200. A block takes a step for every token, longer
/// with its rows (which are staged) and with its tile of the state, which it loads and stores
/// besides. Of several on a multiprocessor each takes longer, but all together less.
double expected_walk_us(const WalkShape& shape, const WalkExtents& extents,
                        const DeviceInfo& device, int segments) {
  constexpr double kStep = 0.13, kStepOfRow = 1.6e-3, kStepOfElement = 1.6e-5;  // us
  constexpr double kBlock = 2, kBlockOfElement = 6e-4;
  constexpr double kAlone = 0.6;   // share of a step that others on the multiprocessor hide
  constexpr double kSegments = 8;  // of the launches that join segments
  constexpr double kBytesPerUs = 3e6;
  constexpr double kStateBytes = 20;  // moved for each element of each segment's state
  constexpr double kPlaneBytes = 8;   // and of each plane
  constexpr double kPlaneSums = 3;    // of the launch that adds planes
  const std::int64_t tokens = tokens_of_segment(extents, segments);
  const std::int64_t parts =
      tokens > 0 ? std::max<std::int64_t>(ceil_div(extents.tokens, tokens), 1) : 1;
  const auto resident = static_cast<double>(blocks_per_core(shape, extents, device));
  const double elements_of_tile = shape.rows() * shape.columns();
  const double step = kStep + kStepOfRow * shape.rows() + kStepOfElement * elements_of_tile;
  const double block = kBlock + kBlockOfElement * elements_of_tile;
  const auto pass = [&](std::int64_t count) {
    const std::int64_t blocks = blocks_of(shape, extents) * count;
    const double per_core = static_cast<double>(ceil_div(blocks, std::max(device.cores, 1)));
    const double rounds = std::max(per_core / resident, 1.0);
    const double together = std::clamp(per_core, 1.0, resident);
    const double steps = static_cast<double>(tokens) * step * (kAlone + (1 - kAlone) * together);
    return rounds * (steps + block);
  };
  // Packed sequences are of unequal lengths, and all wait for the longest.
  const auto longest = static_cast<double>(segments == 1 ? extents.longest : tokens);
  double us = std::max(pass(parts), longest * step + block);
  const auto heads = static_cast<double>(extents.heads);
  if (segments > 1) {
    const double elements = heads * static_cast<double>(extents.rows * extents.columns * parts);
    if (!extents.final_only) us += pass(std::max<std::int64_t>(parts - 1, 1));
    us += kSegments + kStateBytes * elements / kBytesPerUs;
  }
  const std::int64_t planes = row_blocks(shape, extents.rows);
  if (planes > 1 && !extents.final_only) {
    const double elements =
        heads * static_cast<double>(extents.tokens * extents.columns * (planes + 1));
    us += kPlaneSums + kPlaneBytes * elements / kBytesPerUs;
  }
  return us;
}

/// Values of the axis that may be worth it: none but 1 where a segment would be all tokens.
template <class Visit>
void for_each_segments(const WalkExtents& extents, Visit&& visit) {
  for (const int segments : kSegmentCounts) {
    if (segments == 1 || tokens_of_segment(extents, segments) < extents.longest) visit(segments);
  }
}

}  // namespace

std::int64_t mean_tokens(const ops::RecurrentAttentionProblem& problem) {
  return problem.T / std::max<std::int64_t>(problem.N, 1);
}
std::int64_t longest_tokens(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kTimesMean = 4;
  constexpr std::int64_t kShare = 4;  // of all, that one long sequence beside many short ones has
  const std::int64_t mean = mean_tokens(problem);
  const std::int64_t share = mean < kShortWalk ? ceil_div(problem.T, kShare) : 0;
  return std::min(problem.T, std::max(kTimesMean * mean, share));
}

int channel_gates(const ops::RecurrentAttentionProblem& problem) {
  return ((problem.gates & ops::kGateGk) != 0 ? kRowGates : 0) |
         ((problem.gates & ops::kGateGv) != 0 ? kColumnGates : 0);
}

WalkExtents forward_extents(const ops::RecurrentAttentionProblem& problem) {
  return {.heads = problem.sequences() * problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .gates = channel_gates(problem),
          .exact = problem.dtype == DType::kF32,
          .tokens = mean_tokens(problem),
          .longest = longest_tokens(problem),
          .segment_multiple = 16,
          .writes_state = problem.writes_states()};
}

Support needs_gpu(const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  return device.has("sm_80") ? Support::yes()
                             : Support::no(refused::kDevice, "needs compute capability 8.0");
}

Support walk_fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  if (shape.state_warps() > max_state_warps(shape.rows_per_lane)) {
    return Support::no(refused::kConfig, str("row_warps * column_warps is ", shape.state_warps(),
                                             ", at most ", max_state_warps(shape.rows_per_lane),
                                             " with rows_per_lane=", shape.rows_per_lane));
  }
  const std::size_t bytes = walk_shared_bytes(shape, extents.gates, extents.exact);
  if (bytes <= static_cast<std::size_t>(device.l1_bytes)) return Support::yes();
  return Support::no(refused::kMemory, str("needs ", bytes, " bytes of shared memory, a block has ",
                                           device.l1_bytes));
}

double short_walk_us(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  return short_walk_us(shape, extents, device, blocks_per_core(shape, extents, device));
}

namespace {

/// Twice as many tokens at a time where sequences have more, on average, if as many blocks run at
/// once: on 22 problems of an H100 0.77 to 1.04 of the time, 0.90 in the mean.
WalkShape staged(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  WalkShape longer = shape;
  longer.tokens = 2 * shape.tokens;
  if (extents.tokens <= shape.tokens || !fits(longer, extents, device)) return shape;
  const std::int64_t resident = blocks_per_core(longer, extents, device);
  const bool all_run = resident >= blocks_per_core(shape, extents, device) ||
                       resident * device.cores >= blocks_of(shape, extents);
  return all_run ? longer : shape;
}

/// Of a few tokens: blocks of all rows, of as many warps as are fastest.
WalkShape short_shape(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  const int widest = max_column_warps(extents);
  WalkShape best;
  double best_us = 0;
  for_each_row_split([&](const WalkShape& split) {
    if (split.rows() != rows || split.rows_per_lane > 16) return;
    for (int column_warps = widest; column_warps >= std::max(1, widest / 4); column_warps /= 2) {
      const WalkShape shape{split.rows_per_lane, split.row_warps, column_warps, 8};
      if (!fits(shape, extents, device)) continue;
      const double us = short_walk_us(shape, extents, device);
      if (best_us > 0 && us >= best_us) continue;
      best = shape;
      best_us = us;
    }
  });
  return staged(best, extents, device);
}

}  // namespace

WalkShape heuristic_shape(const WalkExtents& extents, const DeviceInfo& device) {
  if (is_short(extents)) return short_shape(extents, device);
  WalkShape best;
  double best_us = 0;
  const auto consider = [&](const WalkShape& tile) {
    const WalkShape shape = with_tokens(tile, extents, device);
    if (!fits(shape, extents, device)) return;
    const double us =
        expected_walk_us(shape, extents, device, heuristic_segments(shape, extents, device));
    if (best_us > 0 && us >= best_us) return;
    best = shape;
    best_us = us;
  };
  constexpr WalkShape kRowSplits[] = {{8, 1}, {16, 1}, {16, 2}, {16, 4}};
  for (const WalkShape& split : kRowSplits) {
    const bool is_smallest = split.rows() == kRowSplits[0].rows();
    if (!is_smallest && split.rows() >= 2 * extents.rows) break;  // half of it would do
    for (const int column_warps : {1, 2}) {
      if (column_warps > max_column_warps(extents)) break;
      consider({split.rows_per_lane, split.row_warps, column_warps, 1});
    }
  }
  return best;
}

namespace {

/// The heuristic one first.
std::vector<WalkShape> candidate_shapes(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  const int widest = max_column_warps(extents);
  std::vector<WalkShape> shapes{heuristic_shape(extents, device)};
  for_each_row_split([&](const WalkShape& split) {
    if (split.rows() != rows) return;
    for (int column_warps = widest; column_warps >= std::max(1, widest / 4); column_warps /= 2) {
      for (const int tokens : {8, 16}) {
        const WalkShape shape{split.rows_per_lane, split.row_warps, column_warps, tokens};
        const auto same = [&](const WalkShape& other) { return other == shape; };
        if (fits(shape, extents, device) && std::ranges::none_of(shapes, same)) {
          shapes.push_back(shape);
        }
      }
    }
  });
  return shapes;
}

}  // namespace

int heuristic_segments(const WalkShape& shape, const WalkExtents& extents,
                       const DeviceInfo& device) {
  if (is_short(extents)) return 1;
  int best = 1;
  double best_us = expected_walk_us(shape, extents, device, 1);
  for_each_segments(extents, [&](int segments) {
    const double us = expected_walk_us(shape, extents, device, segments);
    if (us >= best_us) return;
    best = segments;
    best_us = us;
  });
  return best;
}

std::vector<std::pair<WalkShape, int>> candidate_walks(const WalkExtents& extents,
                                                       const DeviceInfo& device) {
  std::vector<std::pair<WalkShape, int>> walks;
  for (const WalkShape& shape : candidate_shapes(extents, device)) {
    const int best = heuristic_segments(shape, extents, device);
    const bool is_heuristic = walks.empty() || walks.front().first == shape;
    for_each_segments(extents, [&](int segments) {
      const bool is_near = 2 * segments >= best && segments <= 2 * best;
      if (segments == best || (is_heuristic && (segments == 1 || is_near))) {
        walks.emplace_back(shape, segments);
      }
    });
  }
  return walks;
}

}  // namespace attune::cuda::fused_recurrent
