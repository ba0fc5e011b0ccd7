// A kernel of recurrent attention, of either pass, that takes rows as they are, made one that takes
// any: of those that it does not take it is given copies (padded_rows.hpp).
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/padded_rows.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// `Inner` has the alias Config. Its takes_rows(problem) says whether it takes every call of a
/// problem itself, takes_rows(problem, args) whether it takes this one, whose strides may decide.
template <class Inner>
class WithPaddedRows : public Inner {
 public:
  using Config = typename Inner::Config;
  using Problem = typename Config::Op::Problem;
  using Args = typename Config::Op::Args;
  static constexpr bool kIsBackward = std::is_same_v<Args, ops::RecurrentAttentionBackwardArgs>;

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    const bool copied = !Inner::takes_rows(problem) && is_worth_copying(problem);
    return Inner::supports(copied ? with_copies(problem) : problem, device);
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
    const bool says_copies = kIsBackward || has_short_sequences(problem);
    if (!says_copies || !own || Inner::takes_rows(problem)) return own;
    return *own + moves_us(2, copies_bytes(problem));  // there and, of what is read, back
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    return Inner::candidate_configs(taken(problem), device);
  }
  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const std::size_t own = Inner::takes_rows(problem) ? 0 : copies_bytes(problem);
    return own + Inner::workspace_bytes(taken(problem), config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    if (Inner::takes_rows(problem)) return Inner::run(problem, args, config, site);
    const LaunchSite rest{.stream = site.stream,
                          .workspace = site.workspace.subspan(copies_bytes(problem))};
    Problem copied = with_copies(problem);
    copied.K = problem.K;  // states have no padding
    copied.V = problem.V;
    if (Inner::takes_rows(problem, args)) return Inner::run(copied, args, config, rest);
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    Args padded = args;
    const PaddedInputs inputs(padded, site.workspace.data());
    const PaddedOutput output(padded, site.workspace.data() + inputs_bytes(problem));
    inputs.copy(stream);
    Inner::run(copied, padded, config, rest);
    output.copy(stream);
  }

 private:
  /// Few tokens are too few for the roundings of 16-bit products to even out, few channels are faster one
  /// by one. Where nothing but the strides may want copies, most calls do without.
  static bool is_worth_copying(const Problem& problem) {
    if (has_whole_rows(problem)) return true;
    if (std::min(problem.K, problem.V) < kRowPiece) return false;
    return static_cast<bool>(evens_out_roundings(problem));
  }
  static std::size_t inputs_bytes(const Problem& problem) {
    return PaddedInputs::bytes<Args>(problem);
  }
  static std::size_t copies_bytes(const Problem& problem) {
    return inputs_bytes(problem) + PaddedOutput::bytes<Args>(problem);
  }
  /// The problem that the copies make.
  static Problem with_copies(Problem problem) {
    problem.aligned = true;
    problem.layout = ops::Layout::kBthd;
    problem.K = padded_channels(problem.K);
    problem.V = padded_channels(problem.V);
    return problem;
  }
  static Problem taken(const Problem& problem) {
    return Inner::takes_rows(problem) ? problem : with_copies(problem);
  }
};

}  // namespace attune::cuda
