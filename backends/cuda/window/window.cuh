// The launches of walks over windows (walk.cuh), of either pass.
#pragma once

#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/window/walk.cuh"

namespace attune::cuda::window {

/// Zeros behind the last of packed sequences, shared out over all blocks.
template <class T, bool kBackward>
__device__ void clear_behind(const Params& p, const Side& side) {
  const auto clear = [&]<class Element>(Element, const TokenView& out, std::int64_t heads,
                                        std::int64_t columns) {
    clear_rows_behind<Element>(p.sequences, p.sequence_count, out, heads, columns,
                               static_cast<int>(threadIdx.x), threads());
  };
  clear(T(), side.x, p.heads, side.channels);
  if constexpr (!kBackward) return;
  if (side.y_of_heads == nullptr) clear(T(), side.y, p.heads, side.channels);
  clear(float(), side.gate_gradient, p.heads, side.channels);
  if (side.shared_terms == nullptr) clear(float(), side.shared_gradient, p.heads, 1);
}

/// grid: [sequences, heads, groups of tiles of both sides].
template <class T, int kTokens, bool kBackward>
__global__ __launch_bounds__(kMostWarps* kWarpSize) void walk_windows(
    const __grid_constant__ Params p) {
  extern __shared__ float4 shared[];
  const auto groups_of = [&](const Side& side) {
    return (side.tiles() + p.tiles_per_block - 1) / p.tiles_per_block;
  };
  const int groups_of_first = groups_of(p.sides[0]);
  const int groups = groups_of_first + (p.side_count > 1 ? groups_of(p.sides[1]) : 0);
  const std::int64_t number = block_number();
  const std::int64_t walk = quotient(number, groups);
  take_over_from_previous_launch();
  for (int i = 0; i < p.side_count; ++i) clear_behind<T, kBackward>(p, p.sides[i]);
  if (walk >= p.sequence_count * p.heads) return;
  const auto group = static_cast<int>(number - walk * groups);
  const bool is_first = group < groups_of_first;
  const Side& side = p.sides[kBackward && !is_first ? 1 : 0];
  const Layout at = layout_of(kTokens, p.warps, side);
  const std::int64_t sequence = quotient(walk, p.heads);
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (span.is_left_out) return;
  const int first_tile = (is_first ? group : group - groups_of_first) * p.tiles_per_block;
  const int end = min(first_tile + p.tiles_per_block, side.tiles());
  float* const memory = reinterpret_cast<float*>(shared);
  const int team = warp_of_block() / p.warps;
  Block block{.p = p,
              .side = side,
              .at = at,
              .shared = memory,
              .mine = memory + at.floats + team * at.team_floats,
              .team = team,
              .warp = warp_of_block() - team * p.warps,
              .warps = p.warps,
              .sequence = sequence,
              .head = walk - sequence * p.heads,
              .span = span};
  find_rows(block);
  for (int tile = first_tile; tile < end; tile += p.teams) {
    const int own = tile + team;
    if constexpr (kBackward) block.forget_warp();
    block.tile = own;
    block.first = own < end ? own * kOwn : 0;
    block.count = own < end ? min(kOwn, side.channels - own * kOwn) : 0;
    block.is_first_tile = tile == first_tile;
    Walk<T, kTokens> walk_of_tile(block);
    walk_of_tile.load_states();
    walk_of_tile.template visit_windows<kBackward>();
  }
}

/// The tensors that a walk has rows of, by their numbers.
inline void list_views(const Params& p, Side& side) {
  const auto of = [](const TokenView& view) {
    return ConstTokenView{view.data, view.batch, view.token, view.head};
  };
  const std::int64_t rows = p.sequences.tokens * p.heads;
  const ConstTokenView plane{.batch = rows, .token = p.heads, .head = 1};
  const ConstTokenView views[] = {side.read,
                                  side.write,
                                  side.gate.rows,
                                  side.other_read,
                                  side.other_write,
                                  side.other_gate.rows,
                                  p.shared_gate.rows,
                                  of(side.x),
                                  of(side.y),
                                  of(side.gate_gradient),
                                  of(side.shared_gradient),
                                  plane};
  static_assert(std::size(views) == kTokenTensors);
  std::ranges::copy(views, side.views);
}

template <class T, bool kBackward>
void launch_windows(Params p, int tokens, cudaStream_t stream) {
  std::int64_t groups = 0;
  std::size_t bytes = 0;
  for (int i = 0; i < p.side_count; ++i) {
    Side& side = p.sides[i];
    list_views(p, side);
    groups += ceil_div(side.tiles(), p.tiles_per_block);
    bytes = std::max(bytes, shared_bytes(tokens, p.teams, p.warps, side));
  }
  const LaunchShape shape{.grid = grid_of(p.sequence_count * p.heads * groups),
                          .block = static_cast<unsigned>(p.teams * p.warps * kWarpSize),
                          .shared_bytes = bytes,
                          .overlaps_previous = true};
  if (tokens == 4) return launch<walk_windows<T, 4, kBackward>>(shape, stream, p);
  if (tokens == 8) return launch<walk_windows<T, 8, kBackward>>(shape, stream, p);
  launch<walk_windows<T, 16, kBackward>>(shape, stream, p);
}

template <class T>
void launch_forward(const Params& p, int tokens, cudaStream_t stream) {
  launch_windows<T, false>(p, tokens, stream);
}
template <class T>
void launch_backward(const Params& p, int tokens, cudaStream_t stream) {
  launch_windows<T, true>(p, tokens, stream);
}

}  // namespace attune::cuda::window
