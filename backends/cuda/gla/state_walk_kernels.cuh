// The launches of walks over states (state_walk.cuh).
//
// Few heads leave multiprocessors idle: then walks without flows first make what segments of a
// sequence add to S and D, and segments are walked at once. For the same reason walks that need
// nothing of each other share a launch.
#pragma once

#include "cuda/gla/segment_starts.cuh"
#include "cuda/gla/state_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla {

/// How a launch of walks stands to the one before it: behind it, but for finding its walks, or
/// beside it. Of walks with the own side's rows those of D need checkpoints of S alone, for which they
/// wait where they are.
enum class Starts : int { kBehind, kBeside };

#if ATTUNE_SM90A_CODE

/// A block's walk, number `index` of all, with a tile of its state.
template <class T, int kD, Gated kGated, Direction kDirection, Leaves kLeaves,
          Starts kStarts = Starts::kBehind>
__device__ __forceinline__ void take_walk(const GlaParams& p, StateShared<kD>& shared,
                                          std::int64_t index, int tile) {
  if constexpr (kStarts == Starts::kBeside) dependents_launch();
  StateWalk<T, kD, kGated, kDirection, kLeaves> block(p, shared, tile);
  if (threadIdx.x < kWarpSize) block.init(index);
  if constexpr (kStarts == Starts::kBehind) take_over_from_previous_launch();
  __syncthreads();  // the walk and its barriers are there
  const bool is_idle = block.is_idle();

  using Role = StateRoles<kD>;
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpSize, 0);
  const int group = warp / (kWarpgroupSize / kWarpSize);
  if (is_idle) {
    block.leave_zeros();
  } else if (warp == Role::kLoader) {
    block.loads().load();
  } else if (warp == Role::kWriter) {
    if constexpr (kLeaves == Leaves::kFlows) block.store_flows();
  } else if constexpr (kLeaves == Leaves::kFlows) {
    block.state(group);
  } else {
    block.segment_sum(group);
  }
  if (warp == Role::kLoader) dependency_wait();  // what comes next waits for this launch alone
}

#endif

/// Which of the terms of S and D are made by a launch of walks of one side: one that needs nothing
/// of the others, or dy's, after the first.
enum class Terms : int { kFirst, kOfWrites };
template <Terms kTerms>
__host__ __device__ constexpr int terms_of(const GlaParams& p) {
  if (kTerms == Terms::kOfWrites) return 1;
  return p.first_terms();
}

template <int kD>
inline constexpr int kStateBlocks = kD == kSmallTile ? 2 : 1;  // of a multiprocessor

/// Blocks (sequence, head and segment; term; tile of the state).
template <class T, int kD, Terms kTerms>
__global__ __launch_bounds__(StateRoles<kD>::kThreads, kStateBlocks<kD>) void state_walks(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StateShared<kD>*>(shared_bytes);
  const BlockPlace at(p, terms_of<kTerms>(p));
  if constexpr (kTerms == Terms::kOfWrites) {
    take_walk<T, kD, Gated::kRows, Direction::kAgainstTime, Leaves::kFlows, Starts::kBeside>(
        p, shared, at.walk, at.tile);
  } else if (at.term == 0) {
    take_walk<T, kD, Gated::kRows, Direction::kWithTime, Leaves::kFlows>(p, shared, at.walk,
                                                                         at.tile);
  } else if (at.term == 1) {
    take_walk<T, kD, Gated::kColumns, Direction::kAgainstTime, Leaves::kFlows>(p, shared, at.walk,
                                                                               at.tile);
  } else {
    take_walk<T, kD, Gated::kColumns, Direction::kWithTime, Leaves::kFlows>(p, shared, at.walk,
                                                                            at.tile);
  }
#endif
}

constexpr Starts starts_of(Direction direction) {
  return direction == Direction::kAgainstTime ? Starts::kBeside : Starts::kBehind;
}

/// The same of one of two sides, in one direction.
template <class T, int kD, Direction kDirection>
__global__ __launch_bounds__(StateRoles<kD>::kThreads, kStateBlocks<kD>) void state_walk_of_both(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StateShared<kD>*>(shared_bytes);
  const BlockPlace at(p, 1);
  take_walk<T, kD, Gated::kBoth, kDirection, Leaves::kFlows, starts_of(kDirection)>(
      p, shared, at.walk, at.tile);
#endif
}

inline constexpr int kSides = 2;

/// The same of both sides: blocks (sequence, head and segment; side; tile of the state).
template <class T, int kD, Direction kDirection>
__global__ __launch_bounds__(StateRoles<kD>::kThreads, kStateBlocks<kD>) void state_walks_of_sides(
    const __grid_constant__ GlaParams keys, const __grid_constant__ GlaParams values) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StateShared<kD>*>(shared_bytes);
  constexpr Starts kStarts = starts_of(kDirection);
  const BlockPlace at(keys, kSides);
  if (at.term == 0) {
    take_walk<T, kD, Gated::kBoth, kDirection, Leaves::kFlows, kStarts>(keys, shared, at.walk,
                                                                        at.tile);
  } else {
    take_walk<T, kD, Gated::kBoth, kDirection, Leaves::kFlows, kStarts>(values, shared, at.walk,
                                                                        at.tile);
  }
#endif
}

inline constexpr int kDirections = 2;

/// Whether a segment starts from what one adds that is cut by its sequence's length.
__device__ __forceinline__ bool is_added(const GlaParams& p, bool with_time, unsigned index) {
  const PartPlace place = place_at(p.parts.sum_places, index / static_cast<unsigned>(p.heads));
  return with_time ? place.segment < place.segments - 1 : place.segment > 0;
}

/// Blocks (sequence, head and segment but one, or sum of parts and head; direction; tile of the state):
/// no segment starts from what the last one adds with time, or the first one against it.
template <class T, int kD, Gated kGated>
__global__ __launch_bounds__(StateRoles<kD>::kThreads, kStateBlocks<kD>) void segment_sums(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StateShared<kD>*>(shared_bytes);
  const BlockPlace at(p, kDirections);
  std::int64_t with_time = at.walk;
  std::int64_t against_time = at.walk;
  if (p.by_parts()) {
    if (!is_added(p, at.term == 0, at.walk)) return take_over_from_previous_launch();
  } else {
    const int needed = p.segments - 1;
    with_time = std::int64_t{at.walk / needed} * p.segments + at.walk % needed;
    against_time = with_time + 1;
  }
  if (at.term == 0) {
    take_walk<T, kD, kGated, Direction::kWithTime, Leaves::kSegmentSum>(p, shared, with_time,
                                                                        at.tile);
  } else {
    take_walk<T, kD, kGated, Direction::kAgainstTime, Leaves::kSegmentSum>(p, shared, against_time,
                                                                           at.tile);
  }
#endif
}

/// Walks of each tile of the state, for each of so many terms.
struct WalkCounts {
  std::int64_t walks;
  int terms;
  bool are_alone = false;  // no other block is on their multiprocessors
};

/// Queues them, if there are any.
template <auto kKernel, int kD, class... Others>
void launch_walks(const GlaParams& p, const WalkCounts& counts, cudaStream_t stream,
                  const Others&... others) {
  if (counts.walks == 0) return;
  constexpr std::size_t kBytes = sizeof(StateShared<kD>);
  constexpr std::size_t kBytesAlone = sizeof(StateShared<kLargeTile>);
  const std::int64_t blocks = counts.walks * counts.terms * p.own_tiles * p.other_tiles;
  launch<kKernel>({.grid = dim3(static_cast<unsigned>(blocks)),
                   .block = dim3(StateRoles<kD>::kThreads),
                   .shared_bytes = counts.are_alone ? kBytesAlone : kBytes,
                   .overlaps_previous = true},
                  stream, p, others...);
}

/// What segments start from, of S and D with the own side's rows.
template <class T, int kD, Gated kGated>
void launch_segment_sums(const GlaParams& p, cudaStream_t stream) {
  if (!p.is_cut()) return;
  const std::int64_t walks = p.by_parts() ? p.sums() : p.walks() / p.segments * (p.segments - 1);
  launch_walks<segment_sums<T, kD, kGated>, kD>(p, {walks, kDirections}, stream);
  if (p.makes_starts()) launch_segment_starts<kGated>(p, stream);
}

template <class T>
void launch_state_walks(const GlaParams& p, cudaStream_t stream) {
  with_value<kSmallTile, kLargeTile>(p.tile_channels, [&]<int kD>() {
    launch_segment_sums<T, kD, Gated::kRows>(p, stream);
    launch_walks<state_walks<T, kD, Terms::kFirst>, kD>(p, {p.walked(), terms_of<Terms::kFirst>(p)},
                                                        stream);
    launch_walks<state_walks<T, kD, Terms::kOfWrites>, kD>(
        p, {p.walked(), terms_of<Terms::kOfWrites>(p), p.flow_arrivals != nullptr}, stream);
  });
}

template <class T>
void launch_state_walks_of_both(const GlaParams& keys, const GlaParams& values,
                                cudaStream_t stream) {
  with_value<kSmallTile, kLargeTile>(keys.tile_channels, [&]<int kD>() {
    constexpr auto kWithTime = Direction::kWithTime;
    constexpr auto kAgainstTime = Direction::kAgainstTime;
    launch_segment_sums<T, kD, Gated::kBoth>(keys, stream);
    if (keys.checkpoints != values.checkpoints) {  // neither side waits for the other
      const WalkCounts counts{keys.walked(), kSides};
      launch_walks<state_walks_of_sides<T, kD, kWithTime>, kD>(keys, counts, stream, values);
      launch_walks<state_walks_of_sides<T, kD, kAgainstTime>, kD>(keys, counts, stream, values);
      return;
    }
    for (const GlaParams* const side : {&keys, &values}) {
      const WalkCounts counts{side->walked(), 1};
      launch_walks<state_walk_of_both<T, kD, kWithTime>, kD>(*side, counts, stream);
      launch_walks<state_walk_of_both<T, kD, kAgainstTime>, kD>(*side, counts, stream);
    }
  });
}

}  // namespace attune::cuda::gla
