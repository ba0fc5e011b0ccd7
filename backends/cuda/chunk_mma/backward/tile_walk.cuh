// What a block of the walks of states walks, and what it takes of the decays on its way.
#pragma once

#include "cuda/chunk_mma/backward/panels.cuh"

namespace attune::cuda::chunk_mma::backward {

/// The warps of a block that walks a tile of the state of kTilePanels x kTilePanels panels: eight, or
/// sixteen, which load half as many tokens for an element of the state. A warpgroup has 64 rows of some
/// columns, a warp 16 of them.
template <int kTilePanels>
struct TileWarps {
  static constexpr int kPanels = kTilePanels;
  static constexpr int kChannels = kPanels * kPanelChannels;  // of keys, and of values
  static constexpr int kRows = 16;                            // of a warp
  static constexpr int kRowWarps = kPanelChannels / kRows;    // of a warpgroup
  static constexpr int kColumnParts = 2;
  static constexpr int kColumns = kChannels / kColumnParts;
  static constexpr int kColumnBlocks = kColumns / 16;
  static constexpr int kWarps = kChannels / kRows * kColumnParts;
  static constexpr int kThreads = kWarps * kWarpSize;

  /// Of a thread's warp, in the tile.
  __device__ static int first_row(int thread) {
    const int warp = thread / kWarpSize;
    return warp / (kRowWarps * kColumnParts) * kPanelChannels + warp % kRowWarps * kRows;
  }
  __device__ static int first_tile_column(int thread) {
    return thread / kWarpSize / kRowWarps % kColumnParts * kColumns;
  }
  __device__ static int key_panel(int thread) { return first_row(thread) / kPanelChannels; }
  __device__ static int value_panel(int thread) {
    return first_tile_column(thread) / kPanelChannels;
  }
};

/// What a block walks.
struct TileWalk {
  Place place;  // of the segment
  std::int64_t head = 0;
  std::int64_t segment = 0;
  std::int64_t first_chunk = 0;  // the number of the segment's first in time
  int chunks = 0;
  int first_key = 0;
  int first_value = 0;
  bool is_back = false;
  HeadRows keys;  // of the segment, from the tile's first channels on
  HeadRows values;

  /// The n-th chunk of the walk, counted with time from the segment's start.
  __device__ int order(int n) const { return is_back ? chunks - 1 - n : n; }
  __device__ Place chunk(int n) const {
    Place chunk = place;
    chunk.first += std::int64_t{order(n)} * kTokens;
    chunk.rows = min(place.rows - order(n) * kTokens, kTokens);
    return chunk;
  }
  __device__ bool is_of_whole_sequence() const { return place.is_first() && place.is_last(); }
  __device__ bool starts_sequence() const { return is_back ? place.is_last() : place.is_first(); }
};

/// A block's walk, of tiles of so many channels.
__device__ __forceinline__ bool find_walk(const BackwardParams& p, int tile, TileWalk& walk) {
  const std::int64_t value_tiles = ceil_div(p.values.channels, tile);
  std::int64_t rest = quotient(block_number(), 2);
  walk.is_back = block_number() % 2 != 0;
  std::int64_t next = quotient(rest, value_tiles);
  walk.first_value = static_cast<int>(rest - next * value_tiles) * tile;
  const std::int64_t key_tiles = ceil_div(p.keys.channels, tile);
  rest = quotient(next, key_tiles);
  walk.first_key = static_cast<int>(next - rest * key_tiles) * tile;
  const std::int64_t of_head = quotient(rest, p.heads);
  walk.head = rest - of_head * p.heads;
  if (of_head >= p.segment_places()) return false;
  const WalkedList& list = p.walked_segments;
  walk.segment = list.numbers == nullptr ? of_head : list.numbers[of_head];
  if (walk.segment < 0) return false;
  if (!find_place(p, walk.segment, p.segment_tokens, walk.place)) return false;
  walk.first_chunk = walk.place.part(p, kTokens);
  walk.chunks = (walk.place.rows + kTokens - 1) / kTokens;
  const TokenRows& keys = walk.is_back ? p.keys.walked_reads : p.keys.walked_writes;
  const TokenRows& values = walk.is_back ? p.values.walked_reads : p.values.walked_writes;
  walk.keys = HeadRows::of(p, keys, walk.place, walk.head, walk.first_key);
  walk.values = HeadRows::of(p, values, walk.place, walk.head, walk.first_value);
  return true;
}

/// What a walk takes of scalar decays.
class ScalarDecays {
 public:
  using Decays = TokenDecays;

  __device__ ScalarDecays(const BackwardParams& p, const TileWalk& walk)
      : walk_(walk), scan_(p, walk.place.sequence, walk.head) {}

  __device__ static bool is_mine() { return TokenDecayScan::is_mine(); }
  __device__ void fetch(int n) { scan_.fetch(walk_.chunk(n)); }
  __device__ void store(TokenDecays& to) const { scan_.sum(to); }

  /// What a token's values are multiplied by.
  __device__ static float factor(const BackwardParams& p, bool is_back, const TokenDecays& decays,
                                 int row) {
    return is_back ? p.scale * decays.from_start(row) : decays.to_end(row);
  }
  /// What a row of the state is, over the chunk.
  __device__ static DecayFactor total(const TokenDecays& decays, int) { return decays.total; }
  /// What the thread keeps of a state's decays, and at which channel; -1: nothing.
  __device__ const KeptDecays& kept_decays(const StateSide& side) const { return side.keys; }
  __device__ int kept() const {
    return threadIdx.x == 0 && walk_.first_key == 0 && walk_.first_value == 0 ? 0 : -1;
  }
  __device__ static DecayFactor kept_total(const TokenDecays& decays) { return decays.total; }

  static constexpr bool kValueGates = false;

 private:
  const TileWalk& walk_;
  TokenDecayScan scan_;
};

/// Of the tile's key channels, then of its value channels.
template <class Own, bool kOfValues>
struct alignas(16) ChannelTotals {
  DecayFactor of[(kOfValues ? 2 : 1) * Own::kChannels];
};

/// What a walk takes of gates of channels, whose operands have the decays of tokens: of key channels
/// alone, or of value channels with or without these.
template <class Own, bool kOfValues>
class ChannelDecays {
 public:
  static constexpr bool kValueGates = kOfValues;
  using Decays = ChannelTotals<Own, kOfValues>;

  __device__ ChannelDecays(const BackwardParams& p, const TileWalk& walk)
      : p_(p),
        walk_(walk),
        side_(is_of_values() ? p.values : p.keys),
        totals_(side_.gates.exist ? side_.chunk_totals : p.values.chunk_totals),
        width_(side_.gates.exist ? side_.channels : p.values.channels),
        channel_((is_of_values() ? walk.first_value : walk.first_key) +
                 static_cast<int>(threadIdx.x) % Own::kChannels) {}

  __device__ static bool is_mine() { return threadIdx.x < kOwners; }
  __device__ void fetch(int n) {
    const std::int64_t at = (walk_.first_chunk + walk_.order(n)) * p_.heads + walk_.head;
    loaded_ = __ldg(totals_ + at * width_ + min(channel_, width_ - 1));
  }
  __device__ void store(Decays& to) const {
    to.of[threadIdx.x] =
        side_.gates.exist ? DecayFactor{loaded_.x, loaded_.y} : DecayFactor{1.0F, 0.0F};
  }

  __device__ static float factor(const BackwardParams& p, bool is_back, const Decays&, int) {
    return is_back ? p.scale : 1.0F;
  }
  __device__ static DecayFactor total(const Decays& decays, int row) { return decays.of[row]; }
  __device__ static DecayFactor value_total(const Decays& decays, int column) {
    return decays.of[Own::kChannels + column];
  }
  __device__ const KeptDecays& kept_decays(const StateSide& side) const {
    return is_of_values() ? side.values : side.keys;
  }
  __device__ int kept() const {
    const bool is_first = (is_of_values() ? walk_.first_key : walk_.first_value) == 0;
    const int channels = side_.gates.exist ? side_.channels : 1;
    return is_mine() && is_first && channel_ < channels ? channel_ : -1;
  }
  __device__ static DecayFactor kept_total(const Decays& decays) { return decays.of[threadIdx.x]; }

 private:
  static constexpr int kOwners = (kOfValues ? 2 : 1) * Own::kChannels;
  __device__ static bool is_of_values() { return kOfValues && threadIdx.x >= Own::kChannels; }

  const BackwardParams& p_;
  const TileWalk& walk_;
  const ChannelSide& side_;
  const float2* const totals_;
  const int width_;
  const int channel_;
  float2 loaded_{1.0F, 0.0F};
};

}  // namespace attune::cuda::chunk_mma::backward
