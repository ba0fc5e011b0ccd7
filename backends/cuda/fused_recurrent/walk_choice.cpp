#include "cuda/fused_recurrent/walk_choice.hpp"

#include <algorithm>
#include <array>

namespace attune::cuda {
namespace {

/// Rows a lane and warps along the rows, from the most parallel to the least.
struct RowSplit {
  int rows_per_lane = 8;
  int row_warps = 1;
  constexpr int rows() const { return WalkShape{rows_per_lane, row_warps, 1, 1}.rows(); }
};
constexpr std::array kRowSplits{RowSplit{8, 1},  RowSplit{16, 1}, RowSplit{8, 2},  RowSplit{32, 1},
                                RowSplit{16, 2}, RowSplit{8, 4},  RowSplit{32, 2}, RowSplit{16, 4},
                                RowSplit{8, 8},  RowSplit{32, 4}, RowSplit{16, 8}};

/// The fewest rows a block may have to hold all `rows`, or as many as it can.
int rows_for(std::int64_t rows) {
  int best = 0;
  for (const RowSplit& split : kRowSplits) {
    const bool holds = split.rows() >= rows;
    const bool best_holds = best >= rows;
    if (holds ? (!best_holds || split.rows() < best) : (!best_holds && split.rows() > best)) {
      best = split.rows();
    }
  }
  return best;
}

/// 32 columns a warp, no more than there are.
int most_column_warps(const WalkExtents& extents) {
  constexpr int kMost = 4;
  int warps = 1;
  while (warps < kMost && warps * kColumnsPerWarp < extents.columns) warps *= 2;
  return warps;
}

bool fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  return static_cast<bool>(walk_fits(shape, extents, device));
}

/// With as many staged tokens as leave room for two blocks on a multiprocessor.
WalkShape with_tokens(WalkShape shape, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr int kMost = 16;
  constexpr int kLeast = 4;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  shape.tokens = kMost;
  const auto bytes = [&] {
    return static_cast<std::int64_t>(walk_shared_bytes(shape, extents.gates, extents.exact));
  };
  while (shape.tokens > kLeast && bytes() > device.l1_bytes / 2 - kReserved) shape.tokens /= 2;
  return shape;
}

std::int64_t blocks_of(const WalkShape& shape, const WalkExtents& extents) {
  return extents.heads * row_blocks(shape, extents.rows) * column_blocks(shape, extents.columns);
}

}  // namespace

int channel_gates(const ops::RecurrentAttentionProblem& problem) {
  return ((problem.gates & ops::kGateGk) != 0 ? kRowGates : 0) |
         ((problem.gates & ops::kGateGv) != 0 ? kColumnGates : 0);
}

Support needs_gpu(const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  return device.has("sm_80") ? Support::yes()
                             : Support::no(refused::kDevice, "needs compute capability 8.0");
}

Support walk_fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  if (shape.state_warps() > most_state_warps(shape.rows_per_lane)) {
    return Support::no(refused::kConfig, str("row_warps * column_warps is ", shape.state_warps(),
                                             ", at most ", most_state_warps(shape.rows_per_lane),
                                             " with rows_per_lane=", shape.rows_per_lane));
  }
  const std::size_t bytes = walk_shared_bytes(shape, extents.gates, extents.exact);
  if (bytes <= static_cast<std::size_t>(device.l1_bytes)) return Support::yes();
  return Support::no(refused::kMemory, str("needs ", bytes, " bytes of shared memory, a block has ",
                                           device.l1_bytes));
}

/// What measured best, or nearly, on an H200: 16 rows a lane and two warps of columns, fewer where
/// there would be fewer blocks than multiprocessors.
WalkShape heuristic_shape(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  WalkShape best;
  for (const int rows_per_lane : {16, 32, 8}) {
    const int row_warps = rows / (rows_per_lane * kRowLanes);
    if (row_warps < 1 || row_warps > most_state_warps(rows_per_lane)) continue;
    best.rows_per_lane = rows_per_lane;
    best.row_warps = row_warps;
    break;
  }
  constexpr int kColumnWarps = 2;
  best.column_warps = std::min({kColumnWarps, most_column_warps(extents),
                                most_state_warps(best.rows_per_lane) / best.row_warps});
  while (best.column_warps > 1 && blocks_of(best, extents) < device.cores) best.column_warps /= 2;
  return with_tokens(best, extents, device);
}

std::vector<WalkShape> candidate_shapes(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  const int widest = most_column_warps(extents);
  std::vector<WalkShape> shapes{heuristic_shape(extents, device)};
  for (const RowSplit& split : kRowSplits) {
    if (split.rows() != rows) continue;
    for (int column_warps = widest; column_warps >= std::max(1, widest / 4); column_warps /= 2) {
      for (const int tokens : {8, 16}) {
        const WalkShape shape{split.rows_per_lane, split.row_warps, column_warps, tokens};
        const auto same = [&](const WalkShape& other) { return other == shape; };
        if (fits(shape, extents, device) && std::ranges::none_of(shapes, same)) {
          shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

}  // namespace attune::cuda
