#include "cuda/chunk_wgmma/backward/params.hpp"

#include <algorithm>
#include <utility>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::chunk_wgmma::backward {
using Problem = ops::RecurrentAttentionProblem;

namespace {

int tile_of(std::int64_t channels) { return channels <= kSmallTile ? kSmallTile : kTileChannels; }

}  // namespace

int tile_channels(const Problem& problem) { return tile_of(std::max(problem.K, problem.V)); }

BackwardShape shape_of(const Problem& problem, bool gate_gradients) {
  return {
      .keys = tile_of(problem.K), .values = tile_of(problem.V), .gate_gradients = gate_gradients};
}

int tiles_of(std::int64_t channels) {
  return static_cast<int>((channels + kTileChannels - 1) / kTileChannels);
}

dim3 walk_grid(const BackwardParams& params) {
  if (params.walked.numbers == nullptr) return dim3(static_cast<unsigned>(params.walks));
  return dim3(static_cast<unsigned>(params.heads * params.tiles()),
              static_cast<unsigned>(params.walked.most));
}

SequenceParts parts_of(const Problem& problem, const BackwardConfig& config) {
  constexpr std::int64_t kLeastChunks = 8;  // of a segment of sequences that are whole on average
  const std::int64_t tiles = std::int64_t{tiles_of(problem.K)} * tiles_of(problem.V);
  return parts_by_length(problem, tiles, config.segments, kLeastChunks * kChunkTokens);
}

std::size_t place_workspace(BackwardParams& params, const Problem& problem,
                            const BackwardConfig& config, std::byte* workspace) {
  constexpr std::int64_t kFloat = sizeof(float);
  constexpr std::int64_t kElement = 2;  // of f16 and bf16
  constexpr std::int64_t kFlag = sizeof(unsigned);
  const std::int64_t state = std::int64_t{tile_channels(problem)} * tile_channels(problem);
  WorkspaceParts parts(workspace);
  params.rows = problem.B * problem.T;
  params.slots = chunk_slots(problem);
  params.key_tiles = tiles_of(problem.K);
  params.value_tiles = tiles_of(problem.V);
  const std::int64_t owners = problem.H * params.tiles();
  params.segments = config.segments;
  params.states = problem.sequences() * owners;
  params.walks = params.by_parts() ? params.parts.count * owners : params.states * config.segments;
  const std::int64_t key_partials = problem.H * params.value_tiles;
  const std::int64_t value_partials = problem.H * params.key_tiles;
  const std::int64_t key_row = padded_channels(problem.K) * kElement;
  const std::int64_t value_row = padded_channels(problem.V) * kElement;
  // Two parts of a gradient are added up in the type they are in anyway, where that saves more than the
  // launch that clears flags takes, and walks that begin a chunk later.
  constexpr std::int64_t kLeastBytes = std::int64_t{8} << 20;  // of a gradient
  constexpr std::int64_t kLeastTokens = 512;
  const bool may_add = problem.N == 0 && problem.T >= kLeastTokens &&
                       problem.H * params.rows * key_row >= kLeastBytes;
  const bool adds_dq = params.value_tiles == 2 && may_add;
  const bool adds_dk = adds_dq && problem.Hkv == problem.H;
  const bool adds_dv = params.key_tiles == 2 && may_add && problem.Hkv == problem.H;
  const std::int64_t flags = owners * params.slots * BackwardParams::kPanels;
  const std::int64_t flag_bytes = (int{adds_dq} + int{adds_dk} + int{adds_dv}) * flags * kFlag;
  params.stored.bytes = static_cast<std::size_t>(flag_bytes);
  params.stored.all = parts.take<unsigned>(flag_bytes);
  unsigned* next = params.stored.all;
  const auto take_flags = [&](bool adds) {
    return adds && next != nullptr ? std::exchange(next, next + flags) : nullptr;
  };
  params.stored.dq = take_flags(adds_dq);
  params.stored.dk = take_flags(adds_dk);
  params.stored.dv = take_flags(adds_dv);
  if (key_partials != problem.H && !adds_dq) {
    params.dq_partials = parts.take(key_partials * params.rows * key_row);
  }
  // Whether dk and dv are added up, the gradients that are wanted say, too: there is room for both ways.
  if (key_partials != problem.Hkv) {
    params.dk_partials = parts.take(key_partials * params.rows * key_row);
  }
  if (value_partials != problem.Hkv) {
    params.dv_partials = parts.take(value_partials * params.rows * value_row);
  }
  if ((problem.gates & ops::kGateG) != 0 && params.tiles() > 1) {
    params.dg_partials = parts.take<float>(owners * params.rows * kFloat);
  }
  if (problem.gates != 0) {
    params.inflow = parts.take<float>(owners * params.rows * kFloat);
    params.checkpoints = parts.take(owners * params.slots * state * kElement);
    params.dgamma_terms = parts.take<float>(params.walks * kFloat);
  }
  if (params.is_cut() || params.sums_all) {
    params.segment_sums = parts.take<float>(2 * params.walks * state * kFloat);
    params.segment_decays = parts.take<float>(2 * params.walks * kFloat);
  }
  if (params.by_parts()) params.parts.places = parts.take<PartPlace>(params.parts.places_bytes());
  if (params.sequences.most_left_out > 0) {
    params.walked.most = most_walked(params.sequences, problem.N);
    params.walked.numbers = parts.take<int>(params.walked.bytes());
    params.of_short =
        parts.take<std::byte>(static_cast<std::int64_t>(pairs::short_gradients_bytes(problem)));
  }
  return parts.used();
}

}  // namespace attune::cuda::chunk_wgmma::backward
