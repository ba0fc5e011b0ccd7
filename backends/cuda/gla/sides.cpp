#include "sides.hpp"

#include <algorithm>
#include <utility>

#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::gla_backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Config = GlaBackwardConfig;

constexpr std::int64_t kElement = 2;  // bytes of f16 and bf16
constexpr std::int64_t kFloat = sizeof(float);

/// Divides a workspace, or only counts its bytes.
class Places {
 public:
  Places(const Problem& problem, std::byte* workspace) : problem_(problem), parts_(workspace) {}

  /// What each side with gates has: that of its rows.
  void place_side(GlaBackwardParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    const std::int64_t channels = std::int64_t{p.part_channels} * p.own_parts;
    p.entering_x = take_tiles(p, p.own_parts);
    p.leaving_y = take_tiles(p, p.own_parts);
    p.x_flow = take_tiles(p, p.own_parts * p.other_parts);
    p.y_flow = take_tiles(p, p.own_parts * p.other_parts);
    p.through = parts_.take<float>(chunks * channels * kFloat);
    p.strong = parts_.take<unsigned>(chunks * (channels / kSmallPart) * kFloat);
    p.anchors = parts_.take<float>(chunks * channels * p.other_parts * kFloat);
    if (p.segments > 1) {
      p.segment_decays = parts_.take<float>(2 * p.walks() * channels * kFloat);
    }
  }
  /// What sides have in common, or the only one has.
  void place_rest(GlaBackwardParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    const std::int64_t state =
        std::int64_t{p.part_channels} * p.part_channels * p.own_parts * p.other_parts;  // elements
    p.states = parts_.take(chunks * state * kElement);
    if (p.segments > 1) {
      p.segment_sums = {parts_.take<float>(2 * p.walks() * state * kFloat), state, 0,
                        std::int64_t{p.part_channels} * p.other_parts, 1};
    }
    if ((problem_.gates & ops::kGateGamma) != 0) {
      p.dgamma_parts = parts_.take<float>(chunks * kFloat);
    }
    if (p.group > 1) {
      const std::int64_t rows = std::max<std::int64_t>(problem_.B, 1) * problem_.T * p.heads;
      p.dy_shares = parts_.take(rows * p.own * kElement);
      p.dz_shares = parts_.take(rows * p.other * kElement);
    }
  }
  /// What goes through the states of a side without gates.
  void place_flows_of_other(GlaBackwardParams& p) {
    p.z_flow = take_tiles(p, p.own_parts * p.other_parts);
    if (values_have_gates(problem_)) p.u_flow = take_tiles(p, p.own_parts * p.other_parts);
  }
  /// What passes between sides with gates.
  void place_exchange(GlaBackwardParams& p) {
    const std::int64_t chunks = p.slots * p.heads;
    p.scores = parts_.take(chunks * kChunk * kChunk * kElement);
    p.near_scores = parts_.take<float>(chunks * kChunk * kNearTokens * kFloat);
    p.moved =
        parts_.take<float>(std::max<std::int64_t>(problem_.B, 1) * problem_.T * p.heads * kFloat);
  }
  std::size_t used() const { return parts_.used(); }

 private:
  static constexpr std::int64_t kNearTokens = 8;

  void* take_tiles(const GlaBackwardParams& p, int parts) {
    return parts_.take(p.slots * p.heads * kChunk * p.part_channels * parts * kElement);
  }

  const Problem& problem_;
  WorkspaceParts parts_;
};

}  // namespace

bool keys_have_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
bool values_have_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }

std::int64_t chunk_slots(const Problem& problem) {
  if (problem.N > 0) return problem.T / kChunk + problem.N;
  return problem.B * ((problem.T + kChunk - 1) / kChunk);
}

GlaBackwardParams side_of(const Problem& problem, const Config& config, bool of_values) {
  GlaBackwardParams params;
  params.own = static_cast<int>(of_values ? problem.V : problem.K);
  params.other = static_cast<int>(of_values ? problem.K : problem.V);
  const bool small = std::max(problem.K, problem.V) <= kSmallPart;
  params.part_channels = static_cast<int>(small ? kSmallPart : kLargePart);
  const auto parts = [&](int channels) {
    return (channels + params.part_channels - 1) / params.part_channels;
  };
  params.own_parts = parts(params.own);
  params.other_parts = parts(params.other);
  params.segments = config.segments;
  params.slots = chunk_slots(problem);
  params.heads = problem.H;
  params.group = static_cast<int>(problem.Hkv > 0 ? problem.H / problem.Hkv : 1);
  params.sequence_count = problem.sequences();
  params.reverse = problem.reverse;
  return params;
}

Sides::Sides(const Problem& problem, const Config& config, std::byte* workspace)
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
  } else {
    places.place_flows_of_other(first);
  }
  workspace_bytes = places.used();
}

void Sides::exchange() {
  const auto give = [](const GlaBackwardParams& from, GlaBackwardParams& to) {
    to.entering_u = from.entering_x;
    to.leaving_z = from.leaving_y;
    to.other_through = from.through;
    to.other_strong = from.strong;
    to.other_segment_decays = from.segment_decays;
  };
  give(first, second);
  give(second, first);
  second.states = first.states;
  second.segment_sums = first.segment_sums;
  std::swap(second.segment_sums.k, second.segment_sums.v);
  second.scores = first.scores;
  second.near_scores = first.near_scores;
  second.moved = first.moved;
  second.moved_sign = -1.0F;
  second.makes_scores = false;
  second.dy_shares = first.dz_shares;
}

}  // namespace attune::cuda::gla_backward
