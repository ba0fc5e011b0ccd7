// Scalar-decay linear attention in chunks, on the tensor cores that every GPU from sm_80 on has.
//
//   O^T = scale S^T Q^T diag(exp b) + V^T P^T            S at the chunk's start, b its log decays
//   S^T = exp(b_last) S^T + V^T diag(exp(b_last - b)) K  P[i][j] = scale exp(b_i - b_j) q_i k_j
//
// A block has one segment of one head and 16 value channels a warp, and walks the segment chunk by
// chunk. The state is transposed so that it can stay in registers all the while: as the sum that
// the second line adds to and, rounded, as the left operand of the first. Chunks of q, k and v come
// by asynchronous copies, stages - 1 ahead. P is needed by all warps, so it is made a chunk ahead
// too: with three stages or more a chunk then takes a single barrier.
//
// Source: Yang et al., "Gated Linear Attention Transformers", arXiv:2312.06635, section 4 (the
// chunks); the transposed state is our own.
#pragma once

#include "cuda/chunk_mma/segment_states.cuh"

namespace attune::cuda::chunk_mma {

/// The outputs of a chunk, and the state after it.
template <class T, class Shape>
__device__ __forceinline__ void advance(State<Shape>& state, Outputs<Shape>& outputs,
                                        const Stage<Shape, true>& stage, const Tile<Shape>& scores,
                                        const ChunkDecays<Shape::kChunk>& decays, float scale) {
  const float shrunk = fit_operand<T, Shape>(state);
  read_state<T, Shape>(outputs, state, stage.q, decays, scale * shrunk);
  scale_state<Shape>(state, decays.total * shrunk);
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    std::uint32_t values[4];
    load_matrices_transposed(values, stage.v.across(16 * step, own_channel()));
    add_chunk<T, Shape>(outputs, values, scores, step);
    decay_values<T, Shape>(values, decays, step);
    write_state<T, Shape>(state, values, stage.k, step);
  }
}

/// grid: value tiles x segments x heads x sequences. block: 32 threads for 16 value channels.
/// kKeeps: there may be snapshots.
template <class T, class Shape, bool kKeeps>
__global__ __launch_bounds__(Shape::kThreads, Shape::kResidentBlocks) void chunk_mma(
    const __grid_constant__ SegmentWalkParams p) {
  using AllTiles = Stage<Shape, true>;
  using Decays = ChunkDecays<Shape::kChunk>;
  constexpr int kScoresBytes = scores_bytes(Shape::kConfig);
  extern __shared__ __align__(128) std::byte memory[];
  const std::uint32_t stages = shared_address(memory);
  const std::uint32_t scores = stages + p.stages * AllTiles::kBytes;
  auto* const decays =
      reinterpret_cast<Decays*>(memory + p.stages * AllTiles::kBytes + 2 * kScoresBytes);
  const Walk walk = make_walk<Shape, !kKeeps>(p, p.segments);
  clear_rows_behind<T>(p.sequences, p.sequence_count, p.o, p.heads, p.value_channels,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  if (walk.span.is_left_out || !has_segment(walk)) return;
  const BlockTokens<T, Shape> tokens(p, walk);
  DecayScan<T, Shape::kChunk> scan(p, walk);
  const auto stage_of = [&](int chunk) {
    return AllTiles(stages + stage_number(chunk, p.stages) * AllTiles::kBytes);
  };
  const auto scores_of = [&](int chunk) { return Tile<Shape>(scores + chunk % 2 * kScoresBytes); };
  const auto load = [&](int chunk) {
    if (chunk < walk.chunks) tokens.load(stage_of(chunk), walk, chunk);
    copy_async_commit();
  };
  const auto make_scores_of = [&](int chunk) {
    const AllTiles stage = stage_of(chunk);
    make_scores<T>(stage.q, stage.k, scores_of(chunk), decays[chunk % kDecayStages], p.scale);
  };

  for (int chunk = 0; chunk < p.stages - 1; ++chunk) load(chunk);
  for (int chunk = 0; scan.is_mine() && chunk < 2; ++chunk) {
    scan.fetch(walk, chunk);
    scan.sum(decays[chunk]);
  }
  float state[Shape::kKeys / 8][4];
  load_segment_start<Shape>(state, p, walk);
  copy_async_wait<0>();
  __syncthreads();  // the first chunks and their decays are there
  if (walk.chunks > 0) make_scores_of(0);

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    if (p.stages > 2) copy_async_wait<0>();
    __syncthreads();  // the chunk's P is there, and the next one's tiles; the last one is done with
    load(chunk + p.stages - 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 2);

    const AllTiles stage = stage_of(chunk);
    float outputs[Shape::kChunk / 8][4];
    advance<T, Shape>(state, outputs, stage, scores_of(chunk), decays[chunk % kDecayStages],
                      p.scale);
    tokens.store(outputs, stage.v, walk, chunk);  // this warp alone read its columns of v
    if constexpr (kKeeps) {
      const Walk again = make_walk<Shape, !kKeeps>(p, p.segments);
      store_state<Shape>(state, p, again, snapshot_behind<Shape>(p, again, chunk));
    }

    if (p.stages == 2) {
      copy_async_wait<0>();
      __syncthreads();  // the next chunk's tiles are there
    }
    if (chunk + 1 < walk.chunks) make_scores_of(chunk + 1);
    if (scan.is_mine()) scan.sum(decays[(chunk + 2) % kDecayStages]);
  }
  const Walk again = make_walk<Shape, !kKeeps>(p, p.segments);  // keeping it would take registers
  store_state<Shape>(state, p, again, final_behind(p, again));
}

template <class T>
void launch_chunk_mma(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                      cudaStream_t stream) {
  with_shape(params, config, [&]<class Shape>() {
    with_value<false, true>(params.snapshots.every > 0, [&]<bool kKeeps>() {
      launch<chunk_mma<T, Shape, kKeeps>>({.grid = block_count(params, params.segments),
                                           .block = Shape::kThreads,
                                           .shared_bytes = shared_bytes(Shape::kKeys, config)},
                                          stream, params);
    });
  });
}

}  // namespace attune::cuda::chunk_mma
