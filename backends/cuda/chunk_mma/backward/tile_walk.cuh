// What a block of the walks of states walks, and what it takes of the decays on its way.
#pragma once

#include "cuda/chunk_mma/backward/panels.cuh"

namespace attune::cuda::chunk_mma::backward {

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

  /// The n-th chunk of the walk, counted with time from the segment's start.
  __device__ int order(int n) const { return is_back ? chunks - 1 - n : n; }
  __device__ Place chunk(int n) const {
    Place chunk = place;
    chunk.first += std::int64_t{order(n)} * kTokens;
    chunk.rows = min(place.rows - order(n) * kTokens, kTokens);
    return chunk;
  }
  __device__ bool starts_sequence() const { return is_back ? place.is_last() : place.is_first(); }
};

__device__ __forceinline__ bool find_walk(const BackwardParams& p, TileWalk& walk) {
  const std::int64_t value_tiles = ceil_div(p.value_channels, kPanelChannels);
  std::int64_t rest = quotient(block_number(), 2);
  walk.is_back = block_number() % 2 != 0;
  std::int64_t next = quotient(rest, value_tiles);
  walk.first_value = static_cast<int>(rest - next * value_tiles) * kPanelChannels;
  const std::int64_t key_tiles = ceil_div(p.key_channels, kPanelChannels);
  rest = quotient(next, key_tiles);
  walk.first_key = static_cast<int>(next - rest * key_tiles) * kPanelChannels;
  walk.segment = quotient(rest, p.heads);
  walk.head = rest - walk.segment * p.heads;
  if (walk.segment >= p.segments) return false;
  if (!find_place(p, walk.segment, p.segment_tokens, walk.place)) return false;
  walk.first_chunk = walk.place.part(p, kTokens);
  walk.chunks = (walk.place.rows + kTokens - 1) / kTokens;
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
  /// Which number of a state's decays is the thread's to keep; -1: none.
  __device__ int kept() const {
    return threadIdx.x == 0 && walk_.first_key == 0 && walk_.first_value == 0 ? 0 : -1;
  }

 private:
  const TileWalk& walk_;
  TokenDecayScan scan_;
};

struct ChannelTotals {
  DecayFactor of[kPanelChannels];
};

/// What a walk takes of gates of key channels, whose operands have the decays of tokens.
class ChannelDecays {
 public:
  using Decays = ChannelTotals;

  __device__ ChannelDecays(const BackwardParams& p, const TileWalk& walk) : p_(p), walk_(walk) {}

  __device__ static bool is_mine() { return threadIdx.x < kPanelChannels; }
  __device__ void fetch(int n) {
    const std::int64_t at = (walk_.first_chunk + walk_.order(n)) * p_.heads + walk_.head;
    loaded_ = __ldg(p_.chunk_totals + at * p_.key_channels + min(own_key(), p_.key_channels - 1));
  }
  __device__ void store(ChannelTotals& to) const { to.of[threadIdx.x] = {loaded_.x, loaded_.y}; }

  __device__ static float factor(const BackwardParams& p, bool is_back, const ChannelTotals&, int) {
    return is_back ? p.scale : 1.0F;
  }
  __device__ static DecayFactor total(const ChannelTotals& decays, int row) {
    return decays.of[row];
  }
  __device__ int kept() const {
    const bool is_kept = is_mine() && walk_.first_value == 0 && own_key() < p_.key_channels;
    return is_kept ? own_key() : -1;
  }

 private:
  __device__ int own_key() const { return walk_.first_key + static_cast<int>(threadIdx.x); }

  const BackwardParams& p_;
  const TileWalk& walk_;
  float2 loaded_{1.0F, 0.0F};
};

}  // namespace attune::cuda::chunk_mma::backward
