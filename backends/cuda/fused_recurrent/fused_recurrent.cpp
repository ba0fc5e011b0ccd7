#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/fused_recurrent/walk_choice.hpp"
#include "cuda/fused_recurrent/walk_views.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda {
namespace {

using Config = FusedRecurrentConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

Config config_of(const WalkShape& shape) {
  return {.rows_per_lane = shape.rows_per_lane,
          .row_warps = shape.row_warps,
          .column_warps = shape.column_warps,
          .tokens = shape.tokens};
}

WalkExtents extents_of(const Problem& problem) {
  return {.heads = problem.sequences() * problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .gates = channel_gates(problem),
          .exact = problem.dtype == DType::kF32};
}

WalkParams walk_params(const Problem& problem, const Args& args, float* planes) {
  const std::int64_t group = problem.H / problem.Hkv;
  return {.sequences = sequences_view(args.cu_seqlens, problem.T),
          .batches = problem.B,
          .sequence_count = problem.sequences(),
          .heads = problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .descending = problem.reverse,
          .read = walk_rows(args.q, 1),
          .write = walk_rows(args.k, group),
          .value = walk_rows(args.v, group),
          .read_scale = static_cast<float>(args.scale),
          .shared_gate = gate_view(args.g),
          .row_gate = walk_gate(args.gk),
          .column_gate = walk_gate(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .initial = state_view(args.initial_state),
          .final = state_view(args.final_state),
          .out = planes == nullptr ? token_view(args.o) : TokenView{},
          .out_vectors = moves_in_quads(args.o),
          .planes = planes,
          .snapshots = {}};
}

template <class T>
void launch_forward(const Problem& problem, const Args& args, const Config& config,
                    const LaunchSite& site) {
  auto* const stream = static_cast<cudaStream_t>(site.stream);
  const WalkShape shape = config.shape();
  const std::int64_t blocks = row_blocks(shape, problem.K);
  float* const planes = blocks > 1 ? reinterpret_cast<float*>(site.workspace.data()) : nullptr;
  launch_walk<T>(shape, walk_params(problem, args, planes), stream);
  if (planes == nullptr) return;
  launch_plane_sums<T>({.planes = planes,
                        .plane_count = blocks,
                        .batches = problem.B,
                        .tokens = problem.T,
                        .heads = problem.H,
                        .columns = problem.V,
                        .group = 1,
                        .out = token_view(args.o)},
                       stream);
}

class FusedRecurrentKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.fused_recurrent"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return needs_gpu(device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return walk_fits(config.shape(), extents_of(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return config_of(heuristic_shape(extents_of(problem), device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkShape& shape : candidate_shapes(extents_of(problem), device)) {
      configs.push_back(config_of(shape));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const std::int64_t blocks = row_blocks(config.shape(), problem.K);
    const std::int64_t floats = blocks * problem.B * problem.T * problem.H * problem.V;
    return blocks > 1 ? static_cast<std::size_t>(floats) * sizeof(float) : 0;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    switch (problem.dtype) {
      case DType::kF16:
        return launch_forward<__half>(problem, args, config, site);
      case DType::kBF16:
        return launch_forward<__nv_bfloat16>(problem, args, config, site);
      default:
        return launch_forward<float>(problem, args, config, site);
    }
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_fused_recurrent() {
  return std::make_unique<FusedRecurrentKernel>();
}

}  // namespace attune::cuda
