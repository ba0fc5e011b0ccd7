#include "cuda/wgmma_walk/walk.hpp"

#include <algorithm>

#include <attune/core/axis_values.hpp>

#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/tensor_map.hpp"

namespace attune::cuda::chunk_wgmma {
namespace {

constexpr std::size_t kScratchAlignment = 64;
constexpr int kWarpgroupValues = smallest_value(&ChunkWgmmaConfig::tile_v);

std::int64_t tiles_of(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  return (extents.V + config.tile_v - 1) / config.tile_v;
}

/// Of a head's state in a tile.
std::int64_t subsegments_of_all(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  return std::int64_t{config.segments} * subsegments_of_segment(extents, config);
}

std::size_t states_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  const std::int64_t states = extents.sequences * extents.heads * warpgroup_tiles(extents, config) *
                              subsegments_of_all(extents, config);
  return static_cast<std::size_t>(states * config.tile_k * kWarpgroupValues) * sizeof(float);
}

std::size_t decays_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  return static_cast<std::size_t>(extents.sequences * extents.heads *
                                  subsegments_of_all(extents, config)) *
         sizeof(float);
}

WalkOperand operand(const ConstTensorView& tensor, std::int64_t heads) {
  return {head_map(tensor, kChunkTokens), heads / tensor.size(2)};
}

}  // namespace

WalkExtents walk_extents(const ops::RecurrentAttentionProblem& problem) {
  const std::int64_t packed = std::max<std::int64_t>(problem.N, 1);
  return {.sequences = problem.sequences(),
          .chunks = (problem.T / packed + kChunkTokens - 1) / kChunkTokens,
          .heads = problem.H,
          .K = static_cast<int>(problem.K),
          .V = problem.V};
}

int warpgroup_tiles(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  return static_cast<int>(tiles_of(extents, config)) * (config.tile_v / kWarpgroupValues);
}

int subsegments_of_segment(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  constexpr std::int64_t kMultiprocessors = 132;  // of sm_90a devices; workspaces do not ask which
  constexpr int kMostSubsegments = 8;
  constexpr int kShortest = 4;
  if (config.segments == 1) return 1;
  const std::int64_t walks =
      extents.sequences * extents.heads * tiles_of(extents, config.of_sums());
  const std::int64_t firsts = walks * (config.segments - 1);
  const std::int64_t blocks = kMultiprocessors * first_walk_blocks(config);
  int subsegments = 1;
  while (subsegments < kMostSubsegments && firsts * subsegments * 2 <= blocks &&
         extents.chunks >= std::int64_t{config.segments} * subsegments * 2 * kShortest) {
    subsegments *= 2;
  }
  return subsegments;
}

std::size_t segment_scratch_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config) {
  return states_bytes(extents, config) + decays_bytes(extents, config) + kScratchAlignment;
}

SegmentScratch segment_scratch(std::span<std::byte> workspace, const WalkExtents& extents,
                               const ChunkWgmmaConfig& config) {
  return {.states = reinterpret_cast<float*>(workspace.data()),
          .tiles = warpgroup_tiles(extents, config),
          .decays = reinterpret_cast<float*>(workspace.data() + states_bytes(extents, config))};
}

WalkParams forward_walk(const ops::RecurrentAttentionProblem& problem,
                        const ops::RecurrentAttentionArgs& args, const ChunkWgmmaConfig& config,
                        std::span<std::byte> workspace) {
  const WalkExtents extents = walk_extents(problem);
  WalkParams params{.q = operand(args.q, problem.H),
                    .k = operand(args.k, problem.H),
                    .v = operand(args.v, problem.H),
                    .o = head_map(args.o, kChunkTokens),
                    .o_rows = token_view(args.o),
                    .extents = extents,
                    .sequences = pairs::chunked_sequences(problem, args),
                    .gates = gate_view(args.g),
                    .gamma = decay_view(args.gamma, problem.H),
                    .initial = initial_states(args),
                    .final = final_states(args),
                    .snapshots = snapshots_view(args),
                    .scratch = config.segments > 1 ? segment_scratch(workspace, extents, config)
                                                   : SegmentScratch{},
                    .segments = config.segments,
                    .subsegments = subsegments_of_segment(extents, config),
                    .reverse = problem.reverse,
                    .scale = static_cast<float>(args.scale)};
  params.scratch.saves_initial = config.segments > 1 && params.initial.data != nullptr &&
                                 params.initial.data == params.final.data;
  return params;
}

SequenceParts parts_of(const ops::RecurrentAttentionProblem& problem,
                       const ChunkWgmmaConfig& config) {
  constexpr std::int64_t kLongChunks = 4;
  return parts_by_length(problem, tiles_of(walk_extents(problem), config), config.segments,
                         kLongChunks * kChunkTokens);
}

namespace {

/// What a walk of parts has in the workspace, of which none is there while its bytes are counted.
struct PartsScratch {
  PartsScratch(const ops::RecurrentAttentionProblem& problem, const ChunkWgmmaConfig& config,
               const SequenceParts& cut, std::byte* memory) {
    constexpr std::int64_t kFloat = sizeof(float);
    WorkspaceParts parts(memory);
    const WalkExtents extents = walk_extents(problem);
    const std::int64_t sums =
        cut.sums(problem.T) * subsegments_of_segment(extents, config) * problem.H;
    places = parts.take<PartPlace>(cut.places_bytes());
    states = parts.take<float>(sums * warpgroup_tiles(extents, config) * config.tile_k *
                               kWarpgroupValues * kFloat);
    decays = parts.take<float>(sums * kFloat);
    bytes = parts.used();
  }

  PartPlace* places;
  float* states;
  float* decays;
  std::size_t bytes;
};

}  // namespace

std::size_t parts_scratch_bytes(const ops::RecurrentAttentionProblem& problem,
                                const ChunkWgmmaConfig& config) {
  return PartsScratch(problem, config, parts_of(problem, config), nullptr).bytes;
}

void cut_into_parts(WalkParams& params, const ops::RecurrentAttentionProblem& problem,
                    const ChunkWgmmaConfig& config, std::span<std::byte> workspace,
                    cudaStream_t stream) {
  SegmentWalkParams cut;
  cut.sequences = params.sequences;
  cut.sequence_count = params.extents.sequences;
  cut.parts = parts_of(problem, config);
  const PartsScratch scratch(problem, config, cut.parts, workspace.data());
  cut.parts.places = scratch.places;
  cut.set_sums(config.segments);
  launch_part_places(cut, stream);
  params.parts = cut.parts;
  params.sums_of_tokens = cut.sums.of_tokens;
  params.scratch.states = scratch.states;
  params.scratch.tiles = warpgroup_tiles(params.extents, config);
  params.scratch.decays = scratch.decays;
  params.scratch.saves_initial =
      params.initial.data != nullptr && params.initial.data == params.final.data;
}

WalkBatch walk_batch(const WalkParams& params) {
  constexpr std::int64_t kTokensOfPrompts = 256;  // of a sequence, on average
  if (params.parts.tokens > 0) return WalkBatch::kParts;
  if (params.snapshots.every > 0) return WalkBatch::kSnapshots;
  const SequencesView& sequences = params.sequences;
  const bool is_mixed =
      sequences.most_left_out > 0 && sequences.tokens < kTokensOfPrompts * params.extents.sequences;
  if (is_mixed) return WalkBatch::kMixed;
  const bool is_pool = params.initial.slots.data != nullptr || params.final.slots.data != nullptr;
  return is_pool ? WalkBatch::kPool : WalkBatch::kAny;
}

dim3 walk_grid(const WalkParams& params, int tile_v, WalkRange range, int blocks_per_sm) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  const WalkExtents& extents = params.extents;
  const std::int64_t tiles = (extents.V + tile_v - 1) / tile_v;
  const std::int64_t walks =
      params.parts.tokens > 0 ? params.parts.count : extents.sequences * range.segments;
  const std::int64_t items = walks * range.subsegments * extents.heads * tiles;
  const bool are_alike = params.sequences.bounds == nullptr;
  if (params.parts.tokens > 0 || (!are_alike && params.sequences.most_left_out == 0)) {
    return dim3(static_cast<unsigned>(std::min(items, kMostBlocks)));
  }
  // A block that finds nothing but sequences that are left out takes its multiprocessor for a
  // microsecond or two.
  constexpr std::int64_t kRounds = 4;
  const std::int64_t rounds = are_alike ? 1 : kRounds;
  const std::int64_t blocks = rounds * blocks_per_sm * multiprocessor_count();
  return dim3(static_cast<unsigned>(std::min(items, blocks)));
}

}  // namespace attune::cuda::chunk_wgmma
