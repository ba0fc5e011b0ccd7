// A backward kernel of recurrent attention, made one that takes other problems by copies.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// Copies says of which problems copies are wanted, which problem they make, how many bytes they take
/// and what a call with them is expected to. Its objects place the copies of a call, make its arguments
/// views of them, and queue loads of what the kernel reads and stores of what it writes.
template <class Inner, class Copies>
class WithCopies : public Inner {
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
    const std::optional<double> own = Inner::expected_us(taken(problem), device);
    return Copies::are_wanted(problem) ? Copies::expected_us(problem, own) : own;
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
    if (!Copies::are_wanted(problem)) return Inner::run(problem, args, config, site);
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    Args copied = args;
    const Copies copies(problem, copied, site.workspace.data());
    copies.load(stream);
    Inner::run(taken(problem), copied, config,
               {.stream = site.stream, .workspace = site.workspace.subspan(copies_bytes(problem))});
    copies.store(stream);
  }

 private:
  static std::size_t copies_bytes(const Problem& problem) {
    return Copies::are_wanted(problem) ? Copies::bytes(problem) : 0;
  }
  static Problem taken(const Problem& problem) {
    return Copies::are_wanted(problem) ? Copies::made_of(problem) : problem;
  }
};

}  // namespace attune::cuda
