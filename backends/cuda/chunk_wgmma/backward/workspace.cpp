#include "cuda/chunk_wgmma/backward/workspace.hpp"

#include <algorithm>

#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::chunk_backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;

/// Of one head: one a chunk, however the tokens of packed sequences are divided.
std::int64_t anchor_slots(const Problem& problem) {
  if (problem.N > 0) return problem.T / kChunkTokens + problem.N;
  return problem.B * ((problem.T + kChunkTokens - 1) / kChunkTokens);
}

std::size_t place(ChunkBackwardParams& params, const Problem& problem,
                  const ChunkBackwardConfig& config, std::byte* workspace) {
  constexpr std::int64_t kFloat = sizeof(float);
  constexpr std::int64_t kElement = 2;  // of f16 and bf16
  const std::int64_t state = std::int64_t{tile_channels(problem)} * tile_channels(problem);
  WorkspaceParts parts(workspace);
  params.rows = problem.B * problem.T;
  params.slots = anchor_slots(problem);
  params.key_parts = parts_of(problem.K);
  params.value_parts = parts_of(problem.V);
  const std::int64_t owners = problem.H * params.parts();
  params.walks = problem.sequences() * owners * config.segments;
  const std::int64_t key_shares = problem.H * params.value_parts;
  const std::int64_t value_shares = problem.H * params.key_parts;
  if (key_shares != problem.H) {
    params.dq_shares = parts.take(key_shares * params.rows * problem.K * kElement);
  }
  if (key_shares != problem.Hkv) {
    params.dk_shares = parts.take(key_shares * params.rows * problem.K * kElement);
  }
  if (value_shares != problem.Hkv) {
    params.dv_shares = parts.take(value_shares * params.rows * problem.V * kElement);
  }
  if ((problem.gates & ops::kGateG) != 0 && params.parts() > 1) {
    params.dg_shares = parts.take<float>(owners * params.rows * kFloat);
  }
  if (problem.gates != 0) {
    params.inflow = parts.take<float>(owners * params.rows * kFloat);
    params.anchors = parts.take(owners * params.slots * state * kElement);
    params.dgamma_parts = parts.take<float>(params.walks * kFloat);
  }
  if (config.segments > 1) {
    params.segment_sums = parts.take<float>(2 * params.walks * state * kFloat);
    params.segment_decays = parts.take<float>(2 * params.walks * kFloat);
  }
  return parts.used();
}

}  // namespace

int tile_channels(const Problem& problem) {
  constexpr int kSmall = 64;
  return std::max(problem.K, problem.V) <= kSmall ? kSmall : kPartChannels;
}

int parts_of(std::int64_t channels) {
  return static_cast<int>((channels + kPartChannels - 1) / kPartChannels);
}

std::size_t chunk_backward_workspace_bytes(const Problem& problem,
                                           const ChunkBackwardConfig& config) {
  ChunkBackwardParams unused;
  return place(unused, problem, config, nullptr);
}

void place_workspace(ChunkBackwardParams& params, const Problem& problem,
                     const ChunkBackwardConfig& config, std::byte* workspace) {
  place(params, problem, config, workspace);
}

}  // namespace attune::cuda::chunk_backward
