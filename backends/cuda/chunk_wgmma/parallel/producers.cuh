// What a block of the parallel form takes, and the warps that bring it: one each for q and k, v, decays,
// and the initial state.
#pragma once

#include "cuda/chunk_wgmma/parallel/parallel.hpp"
#include "cuda/wgmma_walk/tile_copies.cuh"

namespace attune::cuda::chunk_wgmma {

template <class Config>
struct ParallelShape {
  static constexpr int kTileK = Config::kValue.tile_k;
  static constexpr int kTileV = Config::kValue.tile_v;
  static constexpr int kPanelsK = kTileK / kPanelChannels;
  static constexpr int kPanelsV = kTileV / kPanelChannels;
  static constexpr int kTeams = 2;
  static constexpr int kOwn = Config::kValue.chunks;  // chunks of outputs
  static constexpr int kOwnPanels = kOwn * (kPanelsK > kPanelsV ? kPanelsK : kPanelsV);
  /// Where teams take turns, an even number, so that each has stages of its own: of one that the other
  /// team uses in between, a wait could end a phase early.
  static constexpr int kStages = kTileK == 256 && kOwn == 2 ? 3 : 4;
  static constexpr int kThreads = kWarpgroupSize * (1 + kTeams);
  static constexpr int kProducerRegisters = 56;
  static constexpr int kTeamRegisters = 224;
};

template <class Shape>
struct ParallelShared {
  static constexpr int kStages = Shape::kStages;
  std::byte own[Shape::kOwnPanels * kPanelBytes];  // queries, and then outputs
  std::byte k[kStages][Shape::kPanelsK * kPanelBytes];
  std::byte v[kStages][Shape::kPanelsV * kPanelBytes];
  ChunkDecays decays[kStages];  // to_end: to where the first of the block's own chunks begins
  float rows[kChunkTokens];     // scale 2^b of the tokens of its only chunk
  float before;                 // the total decay of all chunks before its own
  Ring<Shape::kOwn> q_ring;
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  Ring<kStages> decay_ring;
  SharedBarrier rows_full;
  SharedBarrier k_landed;
  SharedBarrier v_landed;
};

#if ATTUNE_SM90A_CODE

/// The outputs that a block makes, for which it takes `count` chunks, the last one first.
struct ParallelItem : WalkItem {
  int own = 0;  // so many of the chunks it takes, the first ones, are those whose outputs it makes

  __device__ __forceinline__ int row_of_taken(int n, bool reverse) const {
    return row_of(count - 1 - n, reverse);
  }
};

/// The sequence that has a slot of kTokens tokens, or the last one that starts before it.
template <int kTokens>
__device__ __forceinline__ int sequence_of_slot(const SequencesView& sequences, int count,
                                                unsigned slot) {
  int first = 0;
  int last = count - 1;
  while (first < last) {
    const int middle = (first + last + 1) / 2;
    if (bound_of(sequences, middle) / kTokens + middle > slot) {
      last = middle - 1;
    } else {
      first = middle;
    }
  }
  return first;
}

template <class Shape>
__device__ __forceinline__ ParallelItem parallel_item(const ParallelParams& params) {
  constexpr int kOwnTokens = Shape::kOwn * kChunkTokens;
  const WalkParams& p = params.walk;
  const auto sequences = static_cast<unsigned>(p.extents.sequences);
  const auto tiles = static_cast<unsigned>(value_tiles(p, Shape::kTileV));
  const auto heads = static_cast<unsigned>(p.extents.heads);
  ParallelItem item;
  item.tile = static_cast<int>(blockIdx.x % tiles);
  item.head = static_cast<int>(blockIdx.x / tiles % heads);
  const unsigned index = blockIdx.x / (tiles * heads);
  int slot = 0;
  if (p.sequences.bounds == nullptr) {
    item.n = static_cast<int>(index % sequences);
  } else {
    slot = static_cast<int>(params.slots - 1 - index);
    item.n = sequence_of_slot<kOwnTokens>(p.sequences, static_cast<int>(sequences),
                                          static_cast<unsigned>(slot));
  }
  const SequenceSpan span = span_of(p.sequences, item.n);
  item.batch = static_cast<int>(span.batch);
  item.begin = static_cast<int>(span.begin);
  item.length = static_cast<int>(span.length);
  item.chunks = static_cast<int>(chunks_of(span.length));
  // Those that take most chunks come first.
  const int groups = (item.chunks + Shape::kOwn - 1) / Shape::kOwn;
  const int group = p.sequences.bounds == nullptr ? groups - 1 - static_cast<int>(index / sequences)
                                                  : slot - (item.begin / kOwnTokens + item.n);
  item.is_left_out = group < 0 || group >= groups;  // the former by wrong bounds
  item.count = min((group + 1) * Shape::kOwn, item.chunks);
  item.own = item.count - group * Shape::kOwn;
  return item;
}

/// The decays of the chunks that a block takes. A token's `to_end` is to the beginning of the first of
/// the block's own chunks, of those themselves to their ends.
template <class T, class Shape>
__device__ __forceinline__ void make_parallel_decays(const WalkParams& p, const ParallelItem& item,
                                                     ParallelShared<Shape>& shared) {
  constexpr int kAhead = GatesAhead<T>::kChunks;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const float constant = constant_decay(p.gamma, item.n, item.head);
  RingPosition<Shape::kStages> at;
  float behind = 0.0F;  // log2 decay of the chunks between
  for (int first = 0; first < item.count; first += kAhead) {
    GatesAhead<T> gates;
    gates.load(p, item,
               [&](int i) { return item.row_of_taken(min(first + i, item.count - 1), p.reverse); });
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int n = first + i;
      if (n >= item.count) break;
      const int row = item.row_of_taken(n, p.reverse);
      const float2 own = gates.decays(p, item, i, row, constant);
      shared.decay_ring.wait_empty(at);
      ChunkDecays& to = shared.decays[at.stage];
      write_decays<false>(to, own, p.scale, p.reverse);
      __syncwarp();
      const float between = exp2_approx(behind);
#pragma unroll
      for (int j = 0; j < kTokensPerLane; ++j) {
        to.to_end[row_of_lane(lane, j, p.reverse)] *= between;
      }
      if (n >= item.own) behind += to.log2_sum[p.reverse ? 0 : kChunkTokens - 1];
      if (n == 0) {  // for the team that does not take it
#pragma unroll
        for (int j = 0; j < kTokensPerLane; ++j) {
          const int own_row = row_of_lane(lane, j, p.reverse);
          shared.rows[own_row] = to.from_start[own_row];
        }
        warp_arrive(&shared.rows_full);
      }
      if (n == item.count - 1 && lane == 0) shared.before = exp2_approx(behind);
      shared.decay_ring.publish(at.stage);
      at.advance();
    }
  }
}

/// Has the initial state brought to L2, which is read when the last chunk has been taken.
template <class Shape>
__device__ __forceinline__ void ask_for_initial(const WalkParams& p, const ParallelItem& item) {
  constexpr int kLine = 32;  // elements
  const ConstStateView initial = state_of(p.initial, item.n);
  if (initial.data == nullptr || initial.v != 1) return;
  constexpr int kLines = Shape::kTileV / kLine;
  const float* const from = initial.data + item.head * initial.head + item.tile * Shape::kTileV;
  const int last_v = static_cast<int>(p.extents.V) - item.tile * Shape::kTileV - 1;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < p.extents.K * kLines;
       i += kWarpSize) {
    prefetch_line(from + i / kLines * initial.k + min(i % kLines * kLine, last_v));
  }
}

template <class T, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, const ParallelItem& item,
                                        ParallelShared<Shape>& shared) {
  switch (warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0: {
      TileLoader<Shape::kPanelsK, Shape::kOwn> q(p, p.q, shared.q_ring, shared.own, nullptr);
      TileLoader<Shape::kPanelsK, Shape::kStages> k(p, p.k, shared.k_ring, shared.k[0],
                                                    &shared.k_landed);
      for (int n = 0; n < item.count; ++n) {
        const int row = item.row_of_taken(n, p.reverse);
        if (n < item.own) q.load(item, row, 0);
        k.load(item, row, 0);
      }
      return;
    }
    case 1: {
      TileLoader<Shape::kPanelsV, Shape::kStages> v(p, p.v, shared.v_ring, shared.v[0],
                                                    &shared.v_landed);
      for (int n = 0; n < item.count; ++n) {
        v.load(item, item.row_of_taken(n, p.reverse), item.tile * Shape::kTileV);
      }
      return;
    }
    case 2:
      return make_parallel_decays<T>(p, item, shared);
    case 3:
      return ask_for_initial<Shape>(p, item);
  }
}

#endif

}  // namespace attune::cuda::chunk_wgmma
