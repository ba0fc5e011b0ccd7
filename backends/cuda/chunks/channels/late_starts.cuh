// Device code of late_starts.hpp, by the state warps.
#pragma once

#include "cuda/chunks/channels/output_rows.cuh"
#include "cuda/chunks/channels/segment_states.cuh"
#include "cuda/tiles/publication.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::channels {

inline constexpr int kStateBarrier = 9;  // among the state warps

template <class Shape>
__device__ __forceinline__ void state_sync() {
  named_barrier_sync<kStateBarrier>(Shape::kStateThreads);
}

/// Whether its start reaches a chunk and all before it, as the operand warps have said.
template <class Shape>
__device__ __forceinline__ bool is_reached(const Shared<Shape>& shared, int chunk) {
  const auto& of_warps = shared.reached[chunk % 2];
  return (of_warps[0] | of_warps[1] | of_warps[2] | of_warps[3]) != 0;
}
/// How many chunks it reaches.
template <class Shape>
__device__ __forceinline__ int kept_chunks(const Shared<Shape>& shared) {
  const auto& of_warps = shared.kept;
  return max(max(of_warps[0], of_warps[1]), max(of_warps[2], of_warps[3]));
}

/// The number in the workspace of a segment's first chunk.
template <class Shape>
__device__ __forceinline__ std::int64_t first_kept(const Params& p, const Walk& walk) {
  const std::int64_t chunk = first_part(p.sequences, walk.sequence, walk.span, Shape::kChunk) +
                             walk.skipped / Shape::kChunk;
  return ((chunk * p.heads + walk.head) * p.value_tiles + walk.value_tile) * p.slices + walk.slice;
}

/// A chunk of a segment's walk in the workspace.
template <class Shape>
class KeptChunk {
 public:
  __device__ KeptChunk(const Params& p, const Shared<Shape>& shared, int chunk)
      : late_(p.late),
        number_(shared.first_kept + chunk * (p.heads * p.value_tiles * p.slices)),
        in_shared_(chunk < p.late.in_shared ? shared_address(&shared) + sizeof(Shared<Shape>) +
                                                  chunk * Shape::kKeyTileBytes
                                            : 0) {}

  /// Before any warp may change the stage.
  __device__ __forceinline__ void store(const Stage<Shape>& stage,
                                        const ChunkOperands<Shape>& from) const {
    for_each_piece([&](std::int64_t at, std::uint32_t in_tile) {
      const uint4 queries = load_shared_16(stage.q.at(0, 0) + in_tile);
      if (in_shared_ != 0) {
        store_shared_16(in_shared_ + in_tile, queries);
      } else {
        *reinterpret_cast<uint4*>(late_.queries + at) = queries;
      }
    });
    for (int key = static_cast<int>(threadIdx.x); key < Shape::kKeys; key += Shape::kStateThreads)
      late_.decays[number_ * Shape::kKeys + key] = from.key_decays[key];
  }
  /// Begins to copy it back.
  __device__ __forceinline__ void fetch(const Stage<Shape>& stage) const {
    constexpr int kKeysOfPiece = kPiece / static_cast<int>(sizeof(float));
    if (in_shared_ == 0) {
      for_each_piece([&](std::int64_t at, std::uint32_t in_tile) {
        copy_async_16(stage.q.at(0, 0) + in_tile, late_.queries + at, true);
      });
    }
    const int key = static_cast<int>(threadIdx.x) * kKeysOfPiece;
    if (key >= Shape::kKeys) return;
    copy_async_16(shared_address(decays_in(stage) + key),
                  late_.decays + number_ * Shape::kKeys + key, true);
  }
  /// Where q' is, once fetched.
  __device__ std::uint32_t queries_in(const Stage<Shape>& stage) const {
    return in_shared_ != 0 ? in_shared_ : stage.q.at(0, 0);
  }
  /// Where fetch() puts the step of the decays.
  __device__ static float* decays_in(const Stage<Shape>& stage) {
    return reinterpret_cast<float*>(stage.key_gates);
  }

 private:
  static constexpr int kPiece = 16;  // bytes

  template <class Visit>
  __device__ __forceinline__ void for_each_piece(Visit&& visit) const {
    const std::int64_t tile = number_ * Shape::kKeyTileBytes;
#pragma unroll
    for (int first = 0; first < Shape::kKeyTileBytes; first += kPiece * Shape::kStateThreads) {
      const int at = first + static_cast<int>(threadIdx.x) * kPiece;
      if (at < Shape::kKeyTileBytes) visit(tile + at, static_cast<std::uint32_t>(at));
    }
  }

  const LateStarts& late_;
  std::int64_t number_;
  std::uint32_t in_shared_;  // or 0
};

/// Where a block says that what segment number `segment` adds is there.
__device__ __forceinline__ unsigned* publication_of(const Params& p, const Walk& walk,
                                                    int segment) {
  return p.late.published + sum_index(p, walk, segment) * p.value_tiles + walk.value_tile;
}

/// The earliest of the segments before a walk's own of which anything is left where it starts.
template <class Shape>
__device__ __forceinline__ int first_felt_segment(const Params& p, const Walk& walk) {
  constexpr int kOfLane = Shape::kKeys / kWarpSize;
  constexpr int kAtOnce = 4;  // segments whose loads are under way
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float over[kOfLane];
#pragma unroll
  for (float& decay : over) decay = 1.0F;
#pragma unroll 1
  for (int last = walk.segment - 1; last > 0; last -= kAtOnce) {
    float decays[kAtOnce][kOfLane];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const float* const of_segment =
          p.segment_decays + sum_index(p, walk, max(last - n, 0)) * Shape::kKeys;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) decays[n][i] = of_segment[i * kWarpSize + lane];
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      bool is_felt = false;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        over[i] *= decays[n][i];
        is_felt |= i * kWarpSize + lane < p.copied_keys && !(over[i] < kLeastLeft);
      }
      if (last - n <= 0 || !__any_sync(kFullWarp, is_felt)) return max(last - n, 0);
    }
  }
  return 0;
}

/// Waits for the segments before a walk's own, and makes of what they add what it starts from.
template <class Shape>
__device__ __forceinline__ void load_late_start(States<Shape>& states, const Params& p,
                                                const Walk& walk) {
  for (int segment = static_cast<int>(threadIdx.x) % kWarpSize; segment < walk.segment;
       segment += kWarpSize) {
    wait_for_publications(publication_of(p, walk, segment), 1);
  }
  __syncwarp();  // all of a warp's were waited for
  int segment = first_felt_segment<Shape>(p, walk);
  load_saved<Shape>(states, p, walk, sum_index(p, walk, segment));
#pragma unroll 1
  for (++segment; segment < walk.segment; ++segment) {
    pass_subsegment<Shape>(states, p, walk, sum_index(p, walk, segment));
  }
}

/// What the outputs of the chunks lack that a start reaches.
template <class T, class Shape>
class LateOutputs {
 public:
  __device__ LateOutputs(std::byte* stages, const Shared<Shape>& shared, const Params& p,
                         const Walk& walk)
      : stages_(stages),
        shared_(shared),
        p_(p),
        walk_(walk),
        kept_(kept_chunks(shared)),
        written_(p, walk),
        rows_(p, walk) {
    fetch(0);
    fetch(1);
  }

  /// Makes it, and leaves what is left of the start.
  template <class Advance>
  __device__ __forceinline__ void add(States<Shape>& start) {
#pragma unroll 1
    for (int chunk = 0; chunk < kept_; ++chunk) {
      const Stage<Shape> stage = stage_of(chunk);
      copy_async_wait<1>();
      async_proxy_fence();
      state_sync<Shape>();  // the chunk is there, and all are done with the one before it
      fetch(chunk + 2);
      TileOutputs<Shape> outputs;
      Advance::template read<T, Shape>(start, outputs, kept(chunk).queries_in(stage),
                                       KeptChunk<Shape>::decays_in(stage), p_);
      rows_.add(outputs, stage);
      rows_.store(outputs, stage, walk_, chunk);
    }
  }

 private:
  __device__ KeptChunk<Shape> kept(int chunk) const { return {p_, shared_, chunk}; }
  __device__ Stage<Shape> stage_of(int chunk) const {
    return Stage<Shape>(stages_ + chunk % kFewestStages * Shape::kStageBytes);
  }
  __device__ __forceinline__ void fetch(int chunk) {
    if (chunk < kept_) {
      kept(chunk).fetch(stage_of(chunk));
      written_.fetch(stage_of(chunk), walk_, chunk);
    }
    copy_async_commit();
  }

  std::byte* stages_;
  const Shared<Shape>& shared_;
  const Params& p_;
  const Walk& walk_;
  const int kept_;
  OutputRows<T, Shape> written_;  // the next one to fetch
  OutputRows<T, Shape> rows_;
};

/// Behind a walk from zeros, or of the first segment, with its own state: tells the others what it adds,
/// and finishes the outputs that its start reaches, and what the sequence ends with.
template <class T, class Shape, class Advance>
__device__ __forceinline__ void join_segments_late(States<Shape>& states, std::byte* stages,
                                                   const Shared<Shape>& shared, const Params& p,
                                                   const Walk& walk) {
  const int kept = kept_chunks(shared);
  const StateView final = final_behind(p, walk);
  if (walk.segments == 1) return store_states<Shape>(states, p, walk, final);
  const bool is_last = !has_next_segment(walk);
  if (is_last && kept == 0 && final.data == nullptr) return;
  dependency_wait();  // nothing is published yet
  save_states<Shape>(states, p, walk, sum_index(p, walk, walk.segment));
  if (!is_last) {
    state_sync<Shape>();  // all of it is there
    if (threadIdx.x == 0) publish(publication_of(p, walk, walk.segment));
  }
  if (walk.segment == 0 || (kept == 0 && final.data == nullptr)) return;
  LateOutputs<T, Shape> outputs(stages, shared, p, walk);
  load_late_start<Shape>(states, p, walk);
  outputs.template add<Advance>(states);
  if (final.data == nullptr) return;
  if (kept == walk.chunks) {
    undo_reference<Shape>(states, shared);
    add_saved<Shape>(states, p, walk, sum_index(p, walk, walk.segment));
  } else {  // nothing is left of the start
    load_saved<Shape>(states, p, walk, sum_index(p, walk, walk.segment));
  }
  store_states<Shape>(states, p, walk, final);
}

}  // namespace attune::cuda::channels
