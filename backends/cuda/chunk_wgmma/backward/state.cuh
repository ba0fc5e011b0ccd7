// The state, or its gradient, that a walk starts from and ends with, and the checkpoints between.
#pragma once

#include "cuda/chunk_wgmma/backward/params.hpp"
#include "cuda/chunks/state_matrix.cuh"
#include "cuda/chunks/tile_copies.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/tiles/ring.cuh"
#include "cuda/tiles/wgmma.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::chunk_wgmma::backward {

/// Channels of a block.
template <int kKeys_, int kValues_>
struct ChannelTile {
  static constexpr int kKeys = kKeys_;
  static constexpr int kValues = kValues_;
  static constexpr int kMost = kKeys > kValues ? kKeys : kValues;
  static constexpr bool kIsSmall = kMost == kSmallTile;
};

/// Warpgroups: one per 64 rows of the state, then one that makes the scores, then single warps.
template <int kRows>
struct Roles {
  static constexpr int kStateGroups = kRows / kPanelChannels;
  static constexpr int kScores = kStateGroups;
  static constexpr int kWarps = kStateGroups + 1;
  static constexpr int kThreads = (kStateGroups + 2) * kWarpgroupSize;
  static constexpr int kStateWarps = kStateGroups * kWarpgroupSize / kWarpSize;
  static constexpr int kScoreWarps = kWarpgroupSize / kWarpSize;
  // Of the last warpgroup.
  static constexpr int kLoadWarp = 0;
  static constexpr int kGateWarp = 1;
  static constexpr int kGradientWarp = 2;
  static constexpr int kWriteWarp = 3;
};

/// Blocks of a multiprocessor: two where a state is small, as one alone waits most of the time.
template <class Tile>
inline constexpr int kWalkBlocks = Tile::kIsSmall ? 2 : 1;
/// Then products read from shared memory what they can.
template <class Tile>
inline constexpr bool kFewRegisters = kWalkBlocks<Tile> > 1;
/// What each of so many may have of its 228 KB of shared memory, of which a block has 1 KB besides.
template <class Tile>
inline constexpr std::size_t kMostWalkBytes = std::size_t{228} * 1024 / kWalkBlocks<Tile> - 1024;

/// Shared memory of each block of a launch: so much that no two share a multiprocessor where there is
/// one for each. Short walks take less time beside the other launch's.
template <class Tile>
std::size_t walk_shared_bytes(std::size_t bytes, const BackwardParams& p) {
  constexpr std::size_t kForOne = kMostWalkBytes<Tile> + 1024;
  constexpr std::int64_t kFewChunks = 4;
  const bool is_short = p.slots * p.heads * p.tiles() <= kFewChunks * p.walks;
  if (kWalkBlocks<Tile> == 1 || is_short) return bytes;
  const dim3 grid = walk_grid(p);
  const bool one_each = std::int64_t{grid.x} * grid.y <= multiprocessor_count();
  return one_each ? std::max(bytes, kForOne) : bytes;
}

/// From the registers that each of a multiprocessor's threads begins with to those of its role.
template <int kThreads, int kCount>
__device__ __forceinline__ void take_registers() {
  constexpr int kOfFile = 65536;
  constexpr int kBegin = kOfFile / kThreads / 8 * 8;
  if constexpr (kCount > kBegin) {
    registers_grow<kCount>();
  } else {
    registers_shrink<kCount>();
  }
}

/// Calls f.operator()<ChannelTile>() for the tile that a launch asks for.
template <class F>
void with_tile(const BackwardShape& shape, F&& f) {
  with_value<kSmallTile, kTileChannels>(shape.keys, [&]<int kKeys>() {
    with_value<kSmallTile, kTileChannels>(
        shape.values, [&]<int kValues>() { f.template operator()<ChannelTile<kKeys, kValues>>(); });
  });
}
/// Calls f.operator()<ChannelTile, kGateGradients>() for the instance that a launch asks for.
template <class F>
void with_shape(const BackwardShape& shape, F&& f) {
  with_tile(shape, [&]<class Tile>() {
    with_value<false, true>(shape.gate_gradients, [&]<bool kGateGradients>() {
      f.template operator()<Tile, kGateGradients>();
    });
  });
}

/// Walk number `index` of all sequences, heads, segments and tiles of channels, or of all parts, heads and
/// tiles, of which there are fewer than 2^30: the tiles of a segment are neighbours, so that what they
/// load of the same tokens comes from the cache.
__device__ __forceinline__ ChunkWalk walk_of(const BackwardParams& p, Direction direction,
                                             std::int64_t index) {
  const auto tiles = static_cast<unsigned>(p.tiles());
  const auto heads = static_cast<unsigned>(p.heads);
  const unsigned of_tiles = static_cast<unsigned>(index) / tiles;
  const unsigned tile = static_cast<unsigned>(index) - of_tiles * tiles;
  const auto segments_of_all = static_cast<unsigned>(p.by_parts() ? 1 : p.segments);
  const unsigned of_segments = of_tiles / segments_of_all;
  const unsigned of_heads = of_segments / heads;  // a sequence, or a part
  PartPlace place{static_cast<int>(of_heads),
                  static_cast<int>(of_tiles - of_segments * segments_of_all), p.segments};
  if (p.by_parts()) place = place_of_part(p.parts, of_heads);
  ChunkWalk walk = walk_of_sequence(span_of(p.sequences, place.sequence));
  walk.sequence = place.sequence;
  walk.head = static_cast<int>(of_segments - of_heads * heads);
  walk.owner = static_cast<int>(walk.head * tiles + tile);
  walk.kv_head = walk.head / p.heads_per_kv;
  const int key_tile = static_cast<int>(tile) / p.value_tiles;
  const int value_tile = static_cast<int>(tile) - key_tile * p.value_tiles;
  walk.key_channel = key_tile * kTileChannels;
  walk.value_channel = value_tile * kTileChannels;
  walk.key_partial = walk.head * p.value_tiles + value_tile;
  walk.value_partial = walk.head * p.key_tiles + key_tile;
  take_segment(walk, p, direction, place.segment, max(place.segments, 1));
  if (place.segment >= place.segments) walk.segments = 0;
  return walk;
}

/// The segments of a sequence of one head and tile, and the number of the first one's walk.
struct SegmentsOfState {
  std::int64_t first;
  int count;

  /// Of state number `state` of all sequences, heads and tiles.
  __device__ SegmentsOfState(const BackwardParams& p, std::int64_t state) {
    const std::int64_t of_head = quotient(state, p.tiles());
    const std::int64_t tile = state - of_head * p.tiles();
    first = of_head * p.segments * p.tiles() + tile;
    count = p.segments;
    if (!p.by_parts()) return;
    const std::int64_t sequence = quotient(of_head, p.heads);
    const SequenceSpan span = span_of(p.sequences, sequence);
    const std::int64_t part = first_part(p.sequences, sequence, span, p.parts.tokens);
    first = (part * p.heads + of_head - sequence * p.heads) * p.tiles() + tile;
    // Not those of the part's place: by wrong bounds that may be another sequence's, with more of them.
    count = segments_of_length(span.length, p.parts.tokens);
  }
};

/// The number of a block's walk with outputs. Where short sequences are left out, `sequence` is the
/// block's.
__device__ __forceinline__ std::int64_t number_of_block(const BackwardParams& p,
                                                        std::int64_t sequence) {
  return (p.walked.numbers == nullptr ? 0 : sequence * gridDim.x) + blockIdx.x;
}

/// The walk; of no segment where the block has none.
__device__ __forceinline__ ChunkWalk walk_of_block(const BackwardParams& p, Direction direction) {
  const int sequence = p.walked.numbers == nullptr ? 0 : p.walked.numbers[blockIdx.y];
  ChunkWalk walk = walk_of(p, direction, number_of_block(p, max(sequence, 0)));
  if (sequence < 0) walk.segments = 0;
  return walk;
}

/// The walk's tile of the matrix of a sequence and head, with key channels along rows, as the dq
/// walk has it.
template <class Element, class View>
__device__ __forceinline__ StateMatrix<Element> keys_by_values(const View& view,
                                                               const BackwardParams& p,
                                                               const ChunkWalk& walk) {
  if (view.data == nullptr) return {};
  Element* const first = view.data + walk.sequence * view.sequence + walk.head * view.head +
                         walk.key_channel * view.k + walk.value_channel * view.v;
  return {first, view.k, view.v, p.key_dim - walk.key_channel, p.value_dim - walk.value_channel};
}
/// With value channels along rows, as the dk, dv walk has it.
template <class Element, class View>
__device__ __forceinline__ StateMatrix<Element> values_by_keys(const View& view,
                                                               const BackwardParams& p,
                                                               const ChunkWalk& walk) {
  const StateMatrix<Element> matrix = keys_by_values<Element>(view, p, walk);
  return {matrix.data, matrix.column, matrix.row, matrix.columns, matrix.rows};
}

/// What segment `index` of all adds, as its warpgroup's threads hold it: a word of four elements
/// after the other, each by all threads.
template <int kRows, int kColumns>
__device__ __forceinline__ float4* segment_words(const BackwardParams& p, Direction direction,
                                                 std::int64_t index, int group) {
  constexpr int kWords = kColumns / 8 * kWarpgroupSize;
  const std::int64_t at = static_cast<int>(direction) * p.walks + index;
  return reinterpret_cast<float4*>(p.segment_sums) +
         (at * (kRows / kPanelChannels) + group) * kWords + threadIdx.x % kWarpgroupSize;
}

/// Takes x through segment `index`, over which it decays as given.
template <int kRows, int kColumns>
__device__ __forceinline__ void pass_segment(float (&x)[kColumns / 2], const BackwardParams& p,
                                             Direction direction, std::int64_t index, int group,
                                             float decay) {
  const float4* const from = segment_words<kRows, kColumns>(p, direction, index, group);
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) {
    const float4 added = from[i * kWarpgroupSize];
    x[4 * i] = fmaf(decay, x[4 * i], added.x);
    x[4 * i + 1] = fmaf(decay, x[4 * i + 1], added.y);
    x[4 * i + 2] = fmaf(decay, x[4 * i + 2], added.z);
    x[4 * i + 3] = fmaf(decay, x[4 * i + 3], added.w);
  }
}

/// What the walk starts from: `outer`, which the sequence starts from, taken through the segments
/// before the walk's own in its direction; or that as it was made ahead, in the place of what the
/// walk's own segment adds.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_start(float (&x)[kColumns / 2], const BackwardParams& p,
                                           const ChunkWalk& walk, Direction direction,
                                           const StateMatrix<const float>& outer, int group) {
  const bool made = p.makes_starts() && (!p.by_parts() || walk.segments > 1);
  load_matrix<kColumns>(x, made ? StateMatrix<const float>{} : outer, group);
  const bool with_time = direction == Direction::kWithTime;
  const int before = with_time ? walk.segment : walk.segments - 1 - walk.segment;
  const int step = with_time ? 1 : -1;
  const std::int64_t own = blockIdx.x;
  const float* const decays = p.segment_decays + static_cast<int>(direction) * p.walks;
#pragma unroll 1
  for (int i = made ? 0 : before; i >= (made ? 0 : 1); --i) {
    const std::int64_t index = own - step * i * p.between_segments();
    pass_segment<kRows, kColumns>(x, p, direction, index, group, made ? 0.0F : decays[index]);
  }
}

/// S before the walk.
template <class Tile>
__device__ __forceinline__ void load_state_before(float (&state)[Tile::kValues / 2],
                                                  const BackwardParams& p, const ChunkWalk& walk,
                                                  int group) {
  load_start<Tile::kKeys, Tile::kValues>(state, p, walk, Direction::kWithTime,
                                         keys_by_values<const float>(p.initial_state, p, walk),
                                         group);
}
/// D^T after the walk.
template <class Tile>
__device__ __forceinline__ void load_gradient_after(float (&d)[Tile::kKeys / 2],
                                                    const BackwardParams& p, const ChunkWalk& walk,
                                                    int group) {
  load_start<Tile::kValues, Tile::kKeys>(d, p, walk, Direction::kAgainstTime,
                                         values_by_keys<const float>(p.dfinal_state, p, walk),
                                         group);
}

/// A checkpoint: the state before a chunk, rounded, as 8 x 8 blocks (value channels by key
/// channels), whose rows' pairs are spread over lanes as in an accumulator. A 16-byte word of lane
/// l holds its pairs of a 2 x 2 group of blocks, so both walks move whole words: [V / 16][K /
/// 16][lane].
template <class T, class Tile>
__device__ __forceinline__ uint4* checkpoint_words(const BackwardParams& p, const ChunkWalk& walk,
                                                   int n) {
  const std::int64_t checkpoint = walk.owner * p.slots + walk.first_slot() + walk.order_of(n);
  return reinterpret_cast<uint4*>(static_cast<T*>(p.checkpoints) +
                                  checkpoint * Tile::kKeys * Tile::kValues);
}

}  // namespace attune::cuda::chunk_wgmma::backward
