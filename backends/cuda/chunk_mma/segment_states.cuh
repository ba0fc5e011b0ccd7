// Where the segments of a sequence start from.
//
// A segment can be walked before those in front of it once its start is known. That takes their
// keys and values alone: one pass finds what each segment adds to an empty state, and the blocks
// that make outputs begin with L_{r-1} + d_{r-1} (L_{r-2} + d_{r-2} (...)), where L is what a
// segment added and d what it decayed. The first segment's L includes the caller's initial state. Of
// many segments these sums are made by a launch of their own (segment_starts.hpp).
#pragma once

#include "cuda/chunk_mma/decays.cuh"
#include "cuda/chunk_mma/products.cuh"
#include "cuda/chunk_mma/stages.cuh"

namespace attune::cuda::chunk_mma {

// In the workspace a state is laid out as the warps' registers hold it, so the blocks that write it
// and those that read it may have different numbers of warps.

/// This lane's float4s of a segment's state: number j is at [j * kWarpSize].
template <class Shape>
__device__ __forceinline__ float4* segment_elements(const SegmentWalkParams& p, const Walk& walk,
                                                    std::int64_t index) {
  constexpr int kWarps = Shape::kConfig.warps;
  const auto warp = static_cast<int>(threadIdx.x) / kWarpSize + walk.value_tile * kWarps;
  const std::int64_t row = index * p.value_tiles * kWarps + warp;
  return p.segment_states + row * (Shape::kKeys / 8 * kWarpSize) + threadIdx.x % kWarpSize;
}

template <class Shape>
__device__ __forceinline__ void store_segment(const State<Shape>& state, const SegmentWalkParams& p,
                                              const Walk& walk, std::int64_t index) {
  float4* const to = segment_elements<Shape>(p, walk, index);
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    to[j * kWarpSize] = {state[j][0], state[j][1], state[j][2], state[j][3]};
  }
}

/// state = decay * state + what the segment of that index added. decays(j) are those of elements
/// [j].
template <class Shape, class Decays>
__device__ __forceinline__ void add_segment(State<Shape>& state, const SegmentWalkParams& p,
                                            const Walk& walk, std::int64_t index, Decays&& decays) {
  const float4* const from = segment_elements<Shape>(p, walk, index);
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    const float4 added = from[j * kWarpSize];
    const float4 decay = decays(j);
    state[j][0] = fmaf(state[j][0], decay.x, added.x);
    state[j][1] = fmaf(state[j][1], decay.y, added.y);
    state[j][2] = fmaf(state[j][2], decay.z, added.z);
    state[j][3] = fmaf(state[j][3], decay.w, added.w);
  }
}

/// The decay of a segment, the same of all channels.
class SharedSegmentDecay {
 public:
  __device__ SharedSegmentDecay(const SegmentWalkParams& p, const Walk&, std::int64_t index)
      : decay_(p.segment_decays[index]) {}
  __device__ float4 operator()(int) const { return {decay_, decay_, decay_, decay_}; }

 private:
  float decay_;
};

/// The state at the start of the block's segment. The last segment's place has a copy of the
/// initial state: the last segment may write the final state over it while the first one still has
/// to start. Decays: of a segment.
template <class Shape, class Decays = SharedSegmentDecay, class Params>
__device__ __forceinline__ void load_segment_start(State<Shape>& state, const Params& p,
                                                   const Walk& walk) {
  if (walk.segments == 1) {
    load_initial<Shape>(state, p, walk);
    return;
  }
  clear<Shape>(state);
  if (walk.segment == 0) {
    if (p.initial_state.data == nullptr) return;
    add_segment<Shape>(state, p, walk, sum_index(p, walk, walk.segments - 1), [](int) {
      return float4{0.0F, 0.0F, 0.0F, 0.0F};
    });
  }
  for (int segment = p.has_starts ? max(walk.segment - 1, 0) : 0; segment < walk.segment;
       ++segment) {
    const std::int64_t index = sum_index(p, walk, segment);
    add_segment<Shape>(state, p, walk, index, Decays(p, walk, index));
  }
}

inline constexpr int kSegmentDecays = 2;  // of the chunk at hand and of the next one

/// grid: value tiles x (segments - 1) x heads x sequences. block: 32 threads for 16 value channels.
template <class T, class Shape>
__global__
__launch_bounds__(Shape::kThreads, Shape::kResidentSegmentBlocks) void chunk_mma_segment_states(
    const __grid_constant__ SegmentWalkParams p) {
  using KeysAndValues = Stage<Shape, false>;
  using Decays = ChunkDecays<Shape::kChunk>;
  extern __shared__ __align__(128) std::byte memory[];
  auto* const decays = reinterpret_cast<Decays*>(memory + p.stages * KeysAndValues::kBytes);
  const Walk walk = make_walk<Shape>(p, p.segments - 1);
  if (walk.span.is_left_out || !has_next_segment(walk)) return;
  const BlockTokens<T, Shape> tokens(p, walk);
  DecayScan<T, Shape::kChunk> scan(p, walk);
  const auto stage_of = [&](int chunk) {
    return KeysAndValues(shared_address(memory) +
                         stage_number(chunk, p.stages) * KeysAndValues::kBytes);
  };
  const auto load = [&](int chunk) {
    if (chunk < walk.chunks) tokens.load(stage_of(chunk), walk, chunk);
    copy_async_commit();
  };

  for (int chunk = 0; chunk < p.stages - 1; ++chunk) load(chunk);
  if (scan.is_mine()) {
    scan.fetch(walk, 0);
    scan.sum(decays[0]);
  }
  float state[Shape::kKeys / 8][4];
  clear<Shape>(state);
  if (walk.segment == 0) {
    load_initial<Shape>(state, p, walk);
    store_segment<Shape>(state, p, walk, sum_index(p, walk, walk.segments - 1));
  }
  float decay = 1.0F;

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    wait_for_stage(p.stages);
    __syncthreads();  // this chunk's tiles and decays are there; the last one is done with
    load(chunk + p.stages - 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 1);
    const KeysAndValues stage = stage_of(chunk);
    const Decays& own = decays[chunk % kSegmentDecays];
    decay *= own.total;
    scale_state<Shape>(state, own.total);
#pragma unroll
    for (int step = 0; step < Shape::kChunk / 16; ++step) {
      std::uint32_t values[4];
      load_matrices_transposed(values, stage.v.across(16 * step, own_channel()));
      decay_values<T, Shape>(values, own, step);
      write_state<T, Shape>(state, values, stage.k, step);
    }
    if (scan.is_mine()) scan.sum(decays[(chunk + 1) % kSegmentDecays]);
  }
  const std::int64_t index = sum_index(p, walk, walk.segment);
  store_segment<Shape>(state, p, walk, index);
  if (threadIdx.x == 0 && walk.value_tile == 0) p.segment_decays[index] = decay;
}

/// In blocks of kSegmentWarps, whatever the main kernel's have.
template <class T>
void launch_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream) {
  SegmentWalkParams narrow = params;
  narrow.value_tiles = params.value_tiles * config.warps / kSegmentWarps;
  with_shape(params, segment_config(config), [&]<class Shape>() {
    if constexpr (Shape::kConfig.warps == kSegmentWarps) {
      launch<chunk_mma_segment_states<T, Shape>>(
          {.grid = block_count(narrow, narrow.segments - 1),
           .block = Shape::kThreads,
           .shared_bytes = static_cast<std::size_t>(params.stages * Stage<Shape, false>::kBytes) +
                           kSegmentDecays * sizeof(ChunkDecays<Shape::kChunk>)},
          stream, narrow);
    }
  });
}

}  // namespace attune::cuda::chunk_mma
