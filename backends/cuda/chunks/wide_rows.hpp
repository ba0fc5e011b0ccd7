// Copies in f32 of what a backward pass in 16 bits reads and writes by token, for kernels that take
// f32 alone.
//
// They are four times the traffic of the tensors themselves, and the kernel has twice their bytes:
// that is for problems that kernels of 16 bits decline.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// A tensor [B, T, H, D], or [B, T, H] as one of D = 1, and its copy, without gaps.
struct WideTensor {
  void* rows = nullptr;  // of 16 bits
  std::array<std::int64_t, 3> sizes{};
  std::array<std::int64_t, 3> strides{};  // in elements
  int channels = 1;
  int lanes = 1;  // threads of a row: a power of two
  float* copy = nullptr;
  constexpr std::int64_t row_count() const { return sizes[0] * sizes[1] * sizes[2]; }
};
/// Some tensors of a call, which one launch copies.
struct WideTensors {
  static constexpr int kMost = 7;
  std::array<WideTensor, kMost> of{};
  int count = 0;
};

/// The problem of the copies, where `problem` is of 16 bits.
ops::RecurrentAttentionProblem with_wide_rows(ops::RecurrentAttentionProblem problem);

/// q, k, v, the gradient of o and gates, and dq, dk and dv. Gradients of gates are f32 as it is.
class WideRows {
 public:
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the tensors of `args` views of their copies in the workspace.
  WideRows(const ops::RecurrentAttentionProblem& problem, ops::RecurrentAttentionBackwardArgs& args,
           std::byte* workspace);

  /// Queues the copies of inputs.
  void load(cudaStream_t stream) const;
  /// Queues the rounding of outputs, to where they go.
  void store(cudaStream_t stream) const;

 private:
  WideTensors inputs_, outputs_;
  DType dtype_;
};

/// A backward kernel of f32, made one that takes 16 bits, too: of those it says nothing of what it
/// expects, so that it comes behind kernels that are made for them.
template <class Inner>
class WithWideRows : public Inner {
 public:
  using Config = typename Inner::Config;
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionBackwardArgs;

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    return Inner::supports(taken(problem), device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return Inner::fits(taken(problem), device, config);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return Inner::heuristic_config(taken(problem), device);
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (is_copied(problem)) return std::nullopt;
    return Inner::expected_us(problem, device);
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    return Inner::candidate_configs(taken(problem), device);
  }
  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return copies_bytes(problem) + Inner::workspace_bytes(taken(problem), config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    if (!is_copied(problem)) return Inner::run(problem, args, config, site);
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    Args wide = args;
    const WideRows rows(problem, wide, site.workspace.data());
    rows.load(stream);
    Inner::run(taken(problem), wide, config,
               {.stream = site.stream, .workspace = site.workspace.subspan(copies_bytes(problem))});
    rows.store(stream);
  }

 private:
  static bool is_copied(const Problem& problem) { return problem.dtype != DType::kF32; }
  static std::size_t copies_bytes(const Problem& problem) {
    return is_copied(problem) ? WideRows::bytes(problem) : 0;
  }
  static Problem taken(const Problem& problem) {
    return is_copied(problem) ? with_wide_rows(problem) : problem;
  }
};

}  // namespace attune::cuda
