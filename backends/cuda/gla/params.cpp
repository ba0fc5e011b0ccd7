#include "cuda/gla/params.hpp"

#include <algorithm>
#include <utility>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/tensor_map.hpp"
#include "cuda/walks/sequence_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::gla {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Config = GlaBackwardConfig;

constexpr std::int64_t kElement = 2;  // bytes of f16 and bf16
constexpr std::int64_t kFloat = sizeof(float);
constexpr int kSectorChannels = 16;  // of 32 bytes, the least that memory moves

constexpr std::int64_t kMultiprocessors = 132;  // of sm_90a devices; workspaces do not ask which

/// Whether the walks of one side leave multiprocessors for those of the other.
bool leaves_room_beside(const GlaParams& p) {
  return 2 * p.walks() * p.own_tiles * p.other_tiles <= kMultiprocessors;
}
/// Whether walks of D, where one side has gates, leave many of them for so long that what stays within
/// chunks had better begin: 24 problems of an H200 take 0.80 to 1.05 of the time so, 0.95 in the mean,
/// and up to 1.08 with fewer chunks. Packed sequences end at different times.
bool leaves_room_for_chunks(const Problem& problem, const GlaParams& p) {
  constexpr std::int64_t kMostBlocks = 96;
  constexpr std::int64_t kFewestChunks = 12;  // of a segment
  return problem.N <= 1 && p.walks() * p.own_tiles * p.other_tiles <= kMostBlocks &&
         ceil_div(problem.T, kChunkTokens * p.segments) >= kFewestChunks;
}

/// Divides a workspace, or only counts its bytes.
class Places {
 public:
  Places(const Problem& problem, std::byte* workspace) : problem_(problem), parts_(workspace) {}

  /// What each side with gates has: that of its rows.
  void place_side(GlaParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    const std::int64_t channels = std::int64_t{p.tile_channels} * p.own_tiles;
    p.own_rows = take_rows(p, p.own, p.y_flow(p.other_tiles));
    p.total_decay = parts_.take<float>(chunks * channels * kFloat);
    p.strong = parts_.take<unsigned>(chunks * (channels / kSmallTile) * kFloat);
    p.state_products = parts_.take<float>(chunks * channels * p.other_tiles * kFloat);
    if (p.is_cut()) p.segment_decays = parts_.take<float>(2 * p.sums() * channels * kFloat);
  }
  /// What sides have in common, or the only one has.
  void place_rest(GlaParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    const std::int64_t state = state_elements(p);
    place_checkpoints(p);
    if (p.is_cut()) {
      p.segment_sums = {parts_.take<float>(2 * p.sums() * state * kFloat), state, 0,
                        std::int64_t{p.tile_channels} * p.other_tiles, 1};
    }
    if (p.by_parts()) {
      constexpr std::int64_t kPlace = sizeof(PartPlace);
      p.parts.places = parts_.take<PartPlace>(p.parts.places_bytes());
      p.parts.sum_places = parts_.take<PartPlace>(p.parts.sums(problem_.T) * kPlace);
    }
    if ((problem_.gates & ops::kGateGamma) != 0) {
      if (has_few_constant_decays(problem_)) p.gamma_parts = p.own_panels();
      p.dgamma_terms = parts_.take<float>(chunks * p.gamma_parts * kFloat);
    }
    if (p.own_panels() > 1 && (problem_.gates & (ops::kGateG | ops::kGateGamma)) != 0) {
      p.part_terms = parts_.take<float>(chunks * kMostParts * kChunkTokens * kFloat);
      p.parts_done = parts_.take<unsigned>(chunks * kFloat);
    }
    if (p.heads_per_kv > 1) {
      const std::int64_t rows = std::max<std::int64_t>(problem_.B, 1) * problem_.T * p.heads;
      p.dy_partials = parts_.take(rows * padded_channels(p.own) * kElement);
      p.dz_partials = parts_.take(rows * padded_channels(p.other) * kElement);
    }
  }
  void place_checkpoints(GlaParams& p) {
    p.checkpoints = parts_.take(p.slots * p.heads * state_elements(p) * kElement);
  }
  /// What flows by way of the states of a side without gates.
  void place_flows_of_other(GlaParams& p) {
    p.other_rows = take_rows(
        p, p.other, values_have_gates(problem_) ? p.u_flow(p.own_tiles) : p.z_flow(p.own_tiles));
  }
  /// What walks leave of each chunk, for blocks that wait for it.
  void place_arrivals(GlaParams& p) {
    p.flow_arrivals = parts_.take<unsigned>(p.slots * p.heads * kFloat);
    p.slots_by_arrival = parts_.take<int>(p.slots * kFloat);
  }
  /// What passes between sides with gates.
  void place_exchange(GlaParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    p.scores = parts_.take(chunks * kChunkTokens * kChunkTokens * kElement);
    p.made_scores = parts_.take(chunks * kChunkTokens * kChunkTokens * kElement);
    p.diagonal_scores = parts_.take<float>(chunks * kChunkTokens * kDiagonalTokens * kFloat);
    p.gate_shift =
        parts_.take<float>(std::max<std::int64_t>(problem_.B, 1) * problem_.T * p.heads * kFloat);
  }
  std::byte* take_of_short() {
    return parts_.take<std::byte>(
        static_cast<std::int64_t>(pairs::short_gradients_bytes(problem_)));
  }
  /// Of chunks of sequences of more than so many tokens.
  WalkedList take_list(std::int64_t left_out) {
    WalkedList list{.most = pairs::most_walked_parts(problem_, left_out, kChunkTokens)};
    list.numbers = parts_.take<int>(list.bytes());
    return list;
  }
  std::size_t used() const { return parts_.used(); }

 private:
  static constexpr std::int64_t kDiagonalTokens = 8;

  static std::int64_t state_elements(const GlaParams& p) {
    return std::int64_t{p.tile_channels} * p.tile_channels * p.own_tiles * p.other_tiles;
  }
  /// So many tensors; with their map, where there is a workspace.
  ChunkRows take_rows(const GlaParams& p, int channels, int tensors) {
    ChunkRows rows;
    rows.chunks = p.slots * p.heads;
    rows.channels = static_cast<int>(ceil_div(channels, kSectorChannels)) * kSectorChannels;
    rows.data =
        parts_.take<std::byte>(tensors * rows.chunks * kChunkTokens * rows.channels * kElement);
    const ConstTensorView view(rows.data, problem_.dtype,
                               {tensors, rows.chunks * kChunkTokens, 1, rows.channels});
    constexpr int kFetched = 128;  // tiles are of a panel or more of a row
    if (rows.data != nullptr && !view.empty()) rows.map = head_map(view, kChunkTokens, kFetched);
    return rows;
  }

  const Problem& problem_;
  WorkspaceParts parts_;
};

/// Not where the tiles of one long sequence are walked by many of the multiprocessors: launches for parts
/// then take about what these save. Where sequences are whole on average, no part is shorter than a walk of
/// all tokens by a block for each multiprocessor: cutting it gains nothing.
SequenceParts parts_of(const Problem& problem, const GlaParams& side) {
  constexpr std::int64_t kMostBlocks = 12;  // two of small tiles share a multiprocessor
  constexpr std::int64_t kLeastChunks = 8;
  const std::int64_t tiles = std::int64_t{side.own_tiles} * side.other_tiles;
  const std::int64_t most = side.tile_channels == kSmallTile ? 2 * kMostBlocks : kMostBlocks;
  if (problem.H * tiles > most) return {};
  SequenceParts parts = parts_by_length(problem, tiles, side.segments, kLeastChunks * kChunkTokens);
  if (parts.tokens == 0 || side.segments > 1) return parts;
  parts.tokens = std::max(parts.tokens, problem.T * problem.H * tiles / kMultiprocessors);
  if (problem.T < 2 * parts.tokens) return {};
  parts.count = part_count(problem.N, problem.T, true, parts.tokens);
  return parts;
}

}  // namespace

bool has_pairs(const ConstTensorView& tensor) {
  bool even = tensor.size(3) % 2 == 0 &&
              reinterpret_cast<std::uintptr_t>(tensor.data) % (2 * size_of(tensor.dtype)) == 0;
  for (int dim = 0; dim + 1 < 4; ++dim) {
    even = even && (tensor.size(dim) == 1 || tensor.stride(dim) % 2 == 0);
  }
  return even;
}

bool keys_have_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
bool values_have_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }

bool has_few_constant_decays(const Problem& problem) {
  constexpr std::int64_t kFew = 2;
  const std::int64_t sequences = problem.N > 0 ? 1 : problem.B;  // one may have nearly all tokens
  return (problem.gates & ops::kGateGamma) != 0 && sequences * problem.H <= kFew;
}

/// On 43 problems of an H100 those that have so many blocks take 0.17 to 1.1 of the time, others 0.9 to
/// 1.8.
std::int64_t most_left_out(const Problem& problem) {
  if (has_few_constant_decays(problem)) return 0;  // gamma_terms.cuh takes all chunks
  constexpr std::int64_t kForToken = 250;          // panels, for each token of a sequence
  const std::int64_t panels =
      problem.H * (ceil_div(problem.K, kSmallTile) + ceil_div(problem.V, kSmallTile));
  const bool are_many = problem.N * problem.N * panels >= kForToken * problem.T;
  return pairs::most_left_out(problem, pairs::kShortOnAverage, are_many, pairs::kShortBesideGla);
}

GlaParams side_of(const Problem& problem, const Config& config, bool of_values) {
  GlaParams params;
  params.own = static_cast<int>(of_values ? problem.V : problem.K);
  params.other = static_cast<int>(of_values ? problem.K : problem.V);
  const bool small = std::max(problem.K, problem.V) <= kSmallTile;
  params.tile_channels = static_cast<int>(small ? kSmallTile : kLargeTile);
  const auto tiles = [&](int channels) {
    return (channels + params.tile_channels - 1) / params.tile_channels;
  };
  params.own_tiles = tiles(params.own);
  params.other_tiles = tiles(params.other);
  params.segments = config.segments;
  params.slots = chunk_slots(problem);
  params.heads = problem.H;
  params.heads_per_kv = static_cast<int>(problem.Hkv > 0 ? problem.H / problem.Hkv : 1);
  params.sequence_count = problem.sequences();
  params.sequences.tokens = problem.T;
  params.reverse = problem.reverse;
  if (most_left_out(problem) == 0) params.parts = parts_of(problem, params);
  return params;
}

GatedSides::GatedSides(const Problem& problem, const Config& config, std::byte* workspace)
    : first_of_values(!keys_have_gates(problem)),
      both(keys_have_gates(problem) && values_have_gates(problem)) {
  Places places(problem, workspace);
  first = side_of(problem, config, first_of_values);
  places.place_side(first);
  places.place_rest(first);
  if (both) {
    second = side_of(problem, config, true);
    places.place_side(second);
    places.place_exchange(first);
    exchange();
    if (leaves_room_beside(first)) places.place_checkpoints(second);
  } else {
    places.place_flows_of_other(first);
    if (leaves_room_for_chunks(problem, first)) places.place_arrivals(first);
  }
  if (const std::int64_t left_out = most_left_out(problem); left_out > 0) {
    of_short = places.take_of_short();
    first.walked_chunks = places.take_list(left_out);
    second.walked_chunks = first.walked_chunks;
  }
  workspace_bytes = places.used();
}

void GatedSides::exchange() {
  const auto give = [](const GlaParams& from, GlaParams& to) {
    to.other_rows = from.own_rows;
    to.other_total_decay = from.total_decay;
    to.other_strong = from.strong;
    to.other_segment_decays = from.segment_decays;
  };
  give(first, second);
  give(second, first);
  second.checkpoints = first.checkpoints;
  second.parts = first.parts;
  second.segment_sums = first.segment_sums;
  std::swap(second.segment_sums.k, second.segment_sums.v);
  second.scores = first.made_scores;
  second.made_scores = first.scores;
  second.diagonal_scores = first.diagonal_scores;
  second.gate_shift = first.gate_shift;
  second.gate_shift_sign = -1.0F;
  second.makes_scores = false;
  first.prepared_beside_other = true;
  second.dy_partials = first.dz_partials;
}

}  // namespace attune::cuda::gla
