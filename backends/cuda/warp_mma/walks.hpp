// How a problem of cuda.warp_mma is cut into segments, and about how long it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/sequence_parts.hpp"
#include "cuda/walks/walk.hpp"
#include "cuda/warp_mma/params.hpp"
#include "cuda/warp_mma/warp_mma_config.hpp"

namespace attune::cuda::warp_mma {

using Config = WarpMmaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

/// Numbers of segments of all sequences (segments.cuh).
inline std::int64_t parts_of(const Problem& problem, const Config& config) {
  if (config.segment == 0) return problem.sequences();
  if (problem.N > 0) return part_count(problem.N, problem.T, true, config.segment);
  return problem.B * std::max<std::int64_t>(ceil_div(problem.T, config.segment), 1);
}

/// What a launch has in the workspace.
struct Workspace {
  Workspace(const Problem& problem, const Config& config, std::byte* memory) {
    if (config.segment == 0) return;
    WorkspaceParts parts(memory);
    const std::int64_t width = padded_width(problem.K, problem.V);
    const std::int64_t count = parts_of(problem, config) * problem.H;
    constexpr std::int64_t kFloat = sizeof(float);
    sums = parts.take<float4>(count * width * width * kFloat);
    key_decays = parts.take<float>(count * width * kFloat);
    value_decays = parts.take<float>(count * width * kFloat);
    bytes = parts.used();
  }
  float4* sums = nullptr;
  float* key_decays = nullptr;
  float* value_decays = nullptr;
  std::size_t bytes = 0;
};

/// Microseconds of a walk over sequences in such segments, fitted to 614 configs of 130 batches on an
/// H200: 0.18 by root mean square of logarithms.
double walks_us(const Problem& problem, const DeviceInfo& device, const Config& config);

/// Of cuda.gla_wgmma or cuda.gla_mma on such narrow heads with gates of channels in 16 bits, which do not
/// say what they expect: fitted to 78 problems, 0.19.
double channel_chunks_us(const Problem& problem, const DeviceInfo& device);

/// The segments that are expected to take least.
Config fastest_config(const Problem& problem, const DeviceInfo& device);

}  // namespace attune::cuda::warp_mma
