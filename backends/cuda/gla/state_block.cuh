// Where a walk over the chunks of a sequence and head is: its segment, its block of the state, and
// what it starts from.
#pragma once

#include "cuda/chunks/state_matrix.cuh"
#include "cuda/gla/chunk.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::gla {

/// Which of a walk's rows and columns are channels with gates. Rows are of the own side but where
/// only columns have gates.
enum class Gated : int { kRows, kColumns, kBoth };

/// What a walk leaves: flows, or only what its segment adds to the state.
enum class Leaves : int { kFlows, kSegmentSum };

/// The walk of a part, number `index` of [parts or sums, heads]; of no segment where the place is none.
__device__ __forceinline__ ChunkWalk walk_at(const GlaParams& p, Direction direction,
                                             const PartPlace* places, std::int64_t index) {
  const std::int64_t number = small_quotient(index, p.heads);
  const PartPlace place = place_at(places, static_cast<unsigned>(number));
  ChunkWalk walk = walk_of_sequence(span_of(p.sequences, place.sequence));
  walk.sequence = place.sequence;
  walk.head = static_cast<int>(index - number * p.heads);
  walk.kv_head = walk.head / p.heads_per_kv;
  const std::int64_t sum = small_quotient(walk.begin, p.parts.tokens) + place.segment;
  walk.owner = static_cast<int>(sum * p.heads + walk.head);
  take_segment(walk, p, direction, place.segment, max(place.segments, 1));
  if (place.segment >= place.segments) walk.segments = walk.count = 0;
  return walk;
}

/// Walk number `index` of all sequences, heads and segments, or of parts, of which there are fewer than
/// 2^30. Its owner is the number of what it adds.
__device__ __forceinline__ ChunkWalk walk_of(const GlaParams& p, Direction direction,
                                             std::int64_t index) {
  if (p.by_parts()) return walk_at(p, direction, p.parts.places, index);
  const std::int64_t owner = small_quotient(index, p.segments);
  const std::int64_t sequence = small_quotient(owner, p.heads);
  ChunkWalk walk = walk_of_sequence(span_of(p.sequences, sequence));
  walk.owner = static_cast<int>(index);
  walk.sequence = static_cast<int>(sequence);
  walk.head = static_cast<int>(owner - sequence * p.heads);
  walk.kv_head = walk.head / p.heads_per_kv;
  take_segment(walk, p, direction, index - owner * p.segments, p.segments);
  return walk;
}

/// The packed sequence that `before` others of several chunks come before, of those; as many as there
/// are, if there are no more. For all of a warp.
__device__ __forceinline__ std::int64_t sequence_of_chunks(const GlaParams& p,
                                                           std::int64_t before) {
  constexpr int kAtOnce = 4;  // loads of a lane
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (std::int64_t first = 0; first < p.sequence_count; first += kAtOnce * kWarpSize) {
    bool has_several[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t sequence = first + i * kWarpSize + lane;
      has_several[i] =
          sequence < p.sequence_count && span_of(p.sequences, sequence).length > kChunkTokens;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      unsigned several = __ballot_sync(kFullWarp, has_several[i]);
      const int count = __popc(several);
      if (before >= count) {
        before -= count;
        continue;
      }
      for (; before > 0; --before) several &= several - 1;
      return first + i * kWarpSize + __ffs(static_cast<int>(several)) - 1;
    }
  }
  return p.sequence_count;
}

/// The number among all walks of number `index` of those over some of the sequences; that of all
/// walks where there are no more. For all of a warp.
inline __device__ __noinline__ std::int64_t walk_over_some(const GlaParams& p, std::int64_t index) {
  const std::int64_t of_sequence = p.heads * p.segments;
  const std::int64_t sequence = sequence_of_chunks(p, index / of_sequence);
  return sequence * of_sequence + (sequence < p.sequence_count ? index % of_sequence : 0);
}

/// What a block takes of a launch of walks: neighbours take the tiles of the state of one walk, and
/// then its other terms, so that what they load of the same tokens comes from the cache.
struct BlockPlace {
  unsigned walk, term;
  int tile;

  __device__ __forceinline__ BlockPlace(const GlaParams& p, unsigned terms) {
    const auto tiles = static_cast<unsigned>(p.own_tiles * p.other_tiles);
    const unsigned of_tile = blockIdx.x / tiles;
    tile = static_cast<int>(blockIdx.x % tiles);
    walk = of_tile / terms;
    term = of_tile % terms;
  }
};

/// A block of the state, or of its gradient: a tile of the channels along its rows, and one of
/// those along its columns.
template <int kD, Gated kGated, Direction kDirection>
class StateBlock {
 public:
  static constexpr bool kOwnRows = kGated != Gated::kColumns;

  __device__ StateBlock(const GlaParams& p, int tile)
      : own_tile_(tile / p.other_tiles), other_tile_(tile % p.other_tiles) {}

  __device__ int own_tile() const { return own_tile_; }
  __device__ int other_tile() const { return other_tile_; }
  __device__ int row_tile() const { return kOwnRows ? own_tile_ : other_tile_; }
  __device__ int column_tile() const { return kOwnRows ? other_tile_ : own_tile_; }

  /// This block of a matrix with strides `k` of own channels and `v` of others.
  template <class Element, class View>
  __device__ StateMatrix<Element> of(const GlaParams& p, const View& view, Element* data) const {
    const int row = row_tile() * kD;
    const int column = column_tile() * kD;
    const std::int64_t down = kOwnRows ? view.k : view.v;
    const std::int64_t right = kOwnRows ? view.v : view.k;
    return {data + row * down + column * right, down, right, (kOwnRows ? p.own : p.other) - row,
            (kOwnRows ? p.other : p.own) - column};
  }
  template <class Element, class View>
  __device__ StateMatrix<Element> of_sequence(const GlaParams& p, const View& view,
                                              const ChunkWalk& walk) const {
    if (view.data == nullptr) return {};
    return of<Element>(p, view, view.data + walk.sequence * view.sequence + walk.head * view.head);
  }

  // ---- what segments add: with zeros where there is no channel

  __device__ std::int64_t segment_index(const GlaParams& p, std::int64_t walk) const {
    return (kDirection == Direction::kWithTime ? 0 : p.sums()) + walk;
  }
  /// This block's own channels by the others, a row of them after the other.
  __device__ float* segment_sum(const GlaParams& p, std::int64_t walk) const {
    return p.segment_sums.data + segment_index(p, walk) * p.segment_sums.sequence +
           own_tile() * kD * p.segment_sums.k + other_tile() * kD * p.segment_sums.v;
  }
  __device__ float* own_decays(const GlaParams& p, std::int64_t walk) const {
    return p.segment_decays + segment_index(p, walk) * own_channels(p) + own_tile() * kD;
  }
  __device__ float* other_decays(const GlaParams& p, std::int64_t walk) const {
    return p.other_segment_decays + segment_index(p, walk) * other_channels(p) + other_tile() * kD;
  }

  /// Calls f(i, row, column) for each pair i, i + 1 of neighbours along a row.
  template <class F>
  __device__ static __forceinline__ void for_each_pair(int group, F&& f) {
    const FragmentLane at;
#pragma unroll
    for (int i = 0; i < kD / 2; i += 2) {
      f(i, group * kPanelChannels + at.row() + i % 4 / 2 * 8, i / 4 * 8 + at.column());
    }
  }

  /// Of a walk whose rows are the own side's, and whose parameters are those of the sums' rows.
  __device__ __forceinline__ void store_segment_sum(const float (&x)[kD / 2], const GlaParams& p,
                                                    std::int64_t walk, int group) const {
    float* const sum = segment_sum(p, walk);
    for_each_pair(group, [&](int i, int row, int column) {
      *reinterpret_cast<float2*>(sum + row * p.segment_sums.k + column) = {x[i], x[i + 1]};
    });
  }

  /// Takes x through the segment of a walk.
  __device__ __forceinline__ void pass_segment(float (&x)[kD / 2], const GlaParams& p,
                                               std::int64_t walk, int group) const {
    constexpr int kLoads = 16;
    const float* const sum = segment_sum(p, walk);
    const auto down = static_cast<int>(kOwnRows ? p.segment_sums.k : p.segment_sums.v);
    const auto right = static_cast<int>(kOwnRows ? p.segment_sums.v : p.segment_sums.k);
    const float* const own = own_decays(p, walk);
    const float* const other = kGated == Gated::kBoth ? other_decays(p, walk) : nullptr;
    for_each_pair(group, [&](int i, int row, int column) {
      float2 decay;
      if constexpr (kOwnRows) {
        decay = {own[row], own[row]};
      } else {
        decay = *reinterpret_cast<const float2*>(&own[column]);
      }
      if constexpr (kGated == Gated::kBoth) {
        decay = times(decay, *reinterpret_cast<const float2*>(&other[column]));
      }
      const float* const added = sum + row * down + column * right;
      x[i] = fmaf(decay.x, x[i], added[0]);
      x[i + 1] = fmaf(decay.y, x[i + 1], added[right]);
      // So many loads under way are enough, and all would not fit the registers.
      if (i % kLoads == kLoads - 2) asm volatile("" ::: "memory");
    });
  }

  /// S before the walk, or D after it: that of the sequence, taken through the segments between.
  __device__ __forceinline__ void load_start(float (&x)[kD / 2], const GlaParams& p,
                                             const ChunkWalk& walk, int group) const {
    const bool with_time = kDirection == Direction::kWithTime;
    if (p.makes_starts() && walk.segments > 1) return load_made_start(x, p, walk.owner, group);
    load_matrix<kD>(
        x, of_sequence<const float>(p, with_time ? p.initial_state : p.dfinal_state, walk), group);
    const std::int64_t first = walk.owner - walk.segment;
    const int passed = with_time ? walk.segment : walk.segments - 1 - walk.segment;
#pragma unroll 1
    for (int i = 0; i < passed; ++i) {
      pass_segment(x, p, first + (with_time ? i : walk.segments - 1 - i), group);
    }
  }

 private:
  __device__ __forceinline__ void load_made_start(float (&x)[kD / 2], const GlaParams& p,
                                                  std::int64_t walk, int group) const {
    const float* const start = segment_sum(p, walk);
    const auto down = static_cast<int>(kOwnRows ? p.segment_sums.k : p.segment_sums.v);
    const auto right = static_cast<int>(kOwnRows ? p.segment_sums.v : p.segment_sums.k);
    for_each_pair(group, [&](int i, int row, int column) {
      const float* const pair = start + row * down + column * right;
      x[i] = pair[0];
      x[i + 1] = pair[right];
    });
  }

  int own_tile_;
  int other_tile_;
};

}  // namespace attune::cuda::gla
