// The chunked walk over sequences on wgmma, of which cuda.chunk_wgmma, cuda.parallel_wgmma and
// cuda.chunk_gla are made: its parameters, and how the host plans its launches.
//
// A walk computes, for scalar log decays a_t (natural) per sequence and head,
//
//   S_t = exp(a_t) S_{t-1} + k_t v_t^T,   o_t = scale S_t^T q_t           S in R^{K x V}
//
// 64 tokens at a time with the state on chip from a sequence's first token to its last. Operands
// have roles, not names: with (q, k, v) = (do, v, k) and states transposed through their strides,
// the same walk gives dq of the backward pass.
//
// To keep more blocks busy, a sequence may be walked in `segments` at once: a first launch leaves
// what each segment but the last adds to the state in scratch memory, the second starts every
// segment from the sum of those before it. Few segments leave few blocks to the first launch: there
// each is taken in several `subsegments`. Packed sequences are cut by their own lengths, where that
// helps: a launch before both finds which segment of which sequence a part of all tokens is.
//
// The first launch has all that a summary of a sequence is made of, but for the last segment. Where
// summaries are wanted it takes that one, too, and starts from zero (`sums_all`); a walk behind it
// starts all segments from the initial state, which need not be there before.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/summary_views.hpp"
#include "cuda/chunks/views.hpp"
#include "cuda/wgmma_walk/walk_config.hpp"

namespace attune::cuda::chunk_wgmma {

/// One of q, k and v: panels of kChunkTokens tokens of a head. Query head h reads its head h /
/// heads_per_kv.
struct WalkOperand {
  CUtensorMap map;
  std::int64_t heads_per_kv = 1;
};

/// What segments leave for one another. Strides follow from WalkExtents and the tiles.
struct SegmentScratch {
  /// [N, H, tiles, segments, subsegments] states of tile_k keys and a warpgroup's value channels, in
  /// the order of the registers of those who write and read them. The very last is the initial state
  /// where `saves_initial`, and in time where `sums_all`.
  float* states = nullptr;
  int tiles = 0;
  float* decays = nullptr;  // [N, H, segments, subsegments]: the total decay of each
  /// The final state overwrites the initial one: segment 0 must not read it while others finish.
  bool saves_initial = false;
  /// There are sums of the last segments, too, and no sum has anything of the initial state.
  bool sums_all = false;
};

struct WalkExtents {
  std::int64_t sequences = 0;  // N
  std::int64_t chunks = 0;     // of a sequence, were all of a length
  std::int64_t heads = 0;      // H, of q
  int K = 0;                   // <= tile_k
  std::int64_t V = 0;
};

struct WalkParams {
  WalkOperand q, k, v;
  CUtensorMap o;
  TokenView o_rows;  // for the tail of a packed sequence, which a panel would reach beyond
  WalkExtents extents;
  SequencesView sequences;
  GateView gates;  // [B, T, H]; may be absent
  ConstantDecayView gamma;
  ConstStateView initial;  // may be absent
  StateView final;         // may be absent
  SnapshotsView snapshots;
  SegmentScratch scratch;
  int segments = 1;
  int subsegments = 1;          // of a segment, in the first launch
  SequenceParts parts = {};     // in place of segments, all alike
  unsigned sums_of_tokens = 0;  // 2^-32 so many begin before a part's sequence, for each token
  bool reverse = false;
  /// Token t takes the decay of token t + 1, and none past the end: what the backward pass, walking
  /// in reverse, passes between two tokens.
  bool shifted_gates = false;
  /// In the first launch, a token's decay acts on what the token writes, too.
  bool inclusive = false;
  float scale = 1;
  /// Takes nothing from the launch before it: a slice of the key channels behind another.
  bool runs_beside_previous = false;
};

/// What a launch goes through: the first segments of a sequence, each in subsegments.
struct WalkRange {
  int segments;
  int subsegments;
  bool is_first;  // of two launches
};

/// Of the launch that writes o, and of the one before it.
constexpr WalkRange main_walk(const WalkParams& p) { return {p.segments, 1, false}; }
constexpr WalkRange first_walk(const WalkParams& p) {
  return {p.scratch.sums_all ? p.segments : p.segments - 1, p.subsegments, true};
}

WalkExtents walk_extents(const ops::RecurrentAttentionProblem& problem);

/// Blocks of the first launch that a multiprocessor has room for.
constexpr int first_walk_blocks(const ChunkWgmmaConfig& config) {
  return config.tile_k == 64 && config.tile_v == 64 ? 2 : 1;
}

/// Tiles of the value channels of one warpgroup that blocks have.
int warpgroup_tiles(const WalkExtents& extents, const ChunkWgmmaConfig& config);

/// Subsegments of a segment in the first launch: as many as fill the device, of four chunks and
/// more.
int subsegments_of_segment(const WalkExtents& extents, const ChunkWgmmaConfig& config);

/// Scratch memory of a walk in segments, or of summaries.
std::size_t segment_scratch_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config);
/// Where its states and decays are.
SegmentScratch segment_scratch(std::span<std::byte> workspace, const WalkExtents& extents,
                               const ChunkWgmmaConfig& config);

/// How packed sequences are cut by their own lengths, if they are.
SequenceParts parts_of(const ops::RecurrentAttentionProblem& problem,
                       const ChunkWgmmaConfig& config);
/// Scratch memory of a walk of such parts.
std::size_t parts_scratch_bytes(const ops::RecurrentAttentionProblem& problem,
                                const ChunkWgmmaConfig& config);
/// Cuts the walk of a forward pass so, into that memory, and queues what finds its parts.
void cut_into_parts(WalkParams& params, const ops::RecurrentAttentionProblem& problem,
                    const ChunkWgmmaConfig& config, std::span<std::byte> workspace,
                    cudaStream_t stream);

/// The walk of the forward pass. `config` must fit the problem.
WalkParams forward_walk(const ops::RecurrentAttentionProblem& problem,
                        const ops::RecurrentAttentionArgs& args, const ChunkWgmmaConfig& config,
                        std::span<std::byte> workspace);

/// Blocks for all items of `range`: enough to fill the device, where items are alike; one each
/// where packed sequences are of unknown lengths, so that the device evens them out, and for parts of
/// them, of which a block takes one; some rounds of the device's where short ones are left out.
dim3 walk_grid(const WalkParams& params, int tile_v, WalkRange range, int blocks_per_sm);

/// What the walk that writes o has instances for.
enum class WalkBatch {
  kAny,
  kPool,       // states lie in slots, which are read early; so are those of the next two
  kSnapshots,  // states are kept on the way
  kParts,      // packed sequences are cut by their own lengths
  kMixed       // most sequences may be short ones, which are left out
};
inline constexpr WalkBatch kWalkBatches[] = {
    WalkBatch::kAny, WalkBatch::kPool, WalkBatch::kSnapshots, WalkBatch::kParts, WalkBatch::kMixed};

WalkBatch walk_batch(const WalkParams& params);

/// When a state warpgroup fetches a chunk's values, and makes them times their decays.
enum class ValueFetch {
  kAhead,   // beside the last product of the chunk before
  kBeside,  // beside the first products with the state, before others keep shared memory busy
  kBehind,  // once all of those are queued
  kInTurn   // beside the last product of the outputs, which reads its values in shared memory
};

/// Registers of a thread in each role of a block.
struct RoleRegisters {
  int producer;
  int scores;
  int state;
};

/// A block's sizes, from its config, and what it walks.
template <class Config, WalkBatch kBatchOfWalk = WalkBatch::kAny>
struct WalkShape {
  static constexpr ChunkWgmmaConfig kConfig = Config::kValue;
  static constexpr WalkBatch kBatch = kBatchOfWalk;
  static constexpr bool kIsInParts = kBatch == WalkBatch::kParts;
  static constexpr bool kIsPool = kBatch != WalkBatch::kAny && !kIsInParts;
  static constexpr int kTileK = kConfig.tile_k;
  static constexpr int kTileV = kConfig.tile_v;
  static constexpr int kPanelsK = kTileK / 64;
  static constexpr int kPanelsV = kTileV / 64;

  static constexpr int kStages = kConfig.stages;
  static constexpr int kDecayStages = 3;
  static constexpr int kScoreStages = kTileK == 256 && kTileV == 64 ? 1 : 2;
  /// A tile of v is used longer than q and k: the output goes out from where it was.
  static constexpr int kValueStages = kTileK > 128 && kStages == 3 ? kStages : kStages + 1;
  /// Chunks that a block asks the memory for at once. One of a whole head of 128 channels is 48 KB
  /// and keeps the memory busy; with more, requests queue up, and some multiprocessors get ahead of
  /// others: blocks of equal work end up to 20 us apart. Of narrower ones that is two.
  static constexpr int kChunksUnderWay = kTileK == 128 && kTileV == 128 ? 1
                                         : kTileK <= 128 && kTileV == 64 && kStages == 4
                                             ? 2
                                             : kValueStages;

  static constexpr int kStateWarpgroups = kPanelsV;
  /// With gates scores take about as long as states, so that those of two chunks are made at once
  /// where registers are left for that. Each warpgroup finds its chunks in stages of its own: in
  /// another's it might take the end of the chunk before for that of its own, as copies may end in
  /// another order than they began.
  static constexpr int kScoreWarpgroups =
      kStateWarpgroups == 1 && kTileK <= 128 && kStages % 2 == 0 ? 2 : 1;
  static constexpr int kThreads = 128 * (1 + kScoreWarpgroups + kStateWarpgroups);
  /// Their sum over the warpgroups is at most what an SM has for each of a block's lanes: 512.
  static constexpr RoleRegisters kRegisters = kStateWarpgroups == 1 ? RoleRegisters{40, 104, 256}
                                              : kTileK == 256       ? RoleRegisters{32, 64, 208}
                                                                    : RoleRegisters{24, 104, 192};
  /// Whether scores' factors are made while scores are under way, and kept for the next chunk.
  static constexpr bool kKeepsFactors = kRegisters.scores > 64;
  /// A state of more than 128 channels leaves no registers for the values of the next chunk; two
  /// warpgroups of such states none for those of this one beside products.
  static constexpr ValueFetch kFetch = kTileK <= 128           ? ValueFetch::kAhead
                                       : kStateWarpgroups == 1 ? ValueFetch::kBeside
                                       : kTileK == 256         ? ValueFetch::kInTurn
                                                               : ValueFetch::kBehind;
};

/// Queues the walk that writes o and the final state. With several segments it starts from the
/// scratch that launch_segment_states() fills, and may be queued right behind it.
template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream);

/// Queues the walk that fills the scratch: k and v are read, but for the last segment.
template <class T>
void launch_segment_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream);

/// Queues what puts the initial state into a scratch that has sums of all segments, in the place of
/// the last one, which nothing starts from.
void launch_initial_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream);
/// Queues what makes summaries of those sums, before that.
void launch_segment_join(const ChunkWgmmaConfig& config, const WalkParams& params,
                         const SummaryViews& to, cudaStream_t stream);

}  // namespace attune::cuda::chunk_wgmma
