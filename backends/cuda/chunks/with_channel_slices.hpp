// A kernel of the backward pass that takes heads of up to 512 channels, made one that takes up to 1024, by
// slices of keys and of values.
//
// Outputs are sums over slices i of the key channels, o_j = sum_i o_ij, and the block S_ij of the state
// depends on q_i, k_i, v_j and gates alone. So gradients are those of all pairs of slices: those of states
// lie side by side, others are added up over the slices that have a part in them.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Channels from `first` on.
struct ChannelSlice {
  std::int64_t first, count;

  static constexpr std::int64_t kMost = 512;
  /// More slices would round 16-bit gradients more often than their tolerance bears.
  static constexpr std::int64_t kMostSliced = 2 * kMost;

  /// All channels of a side, or the first half of them, in whole panels.
  static ChannelSlice first_of(std::int64_t channels) {
    constexpr std::int64_t kPanel = 64;
    const std::int64_t half = ceil_div(ceil_div(channels, 2), kPanel) * kPanel;
    return {0, channels <= kMost ? channels : half};
  }
  ChannelSlice next(std::int64_t channels) const {
    return {first + count, std::min(count, channels - first - count)};
  }
  template <class Tensor>
  void take(Tensor& tensor, int dim) const {
    tensor = tensor.slice(dim, first, first + count);
  }
  template <class Tensor>
  void take(std::optional<Tensor>& tensor, int dim) const {
    if (tensor) take(*tensor, dim);
  }
};

/// `Inner` has the alias Config.
template <class Inner>
class WithChannelSlices : public Inner {
 public:
  using Config = typename Inner::Config;
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionBackwardArgs;

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    constexpr std::int64_t kMost = ChannelSlice::kMostSliced;
    if (problem.K > kMost || problem.V > kMost)
      return Support::no(refused::kShape, str("takes K, V up to ", kMost));
    if (const Support last = Inner::supports(last_pair(problem), device); !last) return last;
    return Inner::supports(first_pair(problem), device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return Inner::fits(first_pair(problem), device, config);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return Inner::heuristic_config(first_pair(problem), device);
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const std::optional<double> of_pair = Inner::expected_us(first_pair(problem), device);
    if (!of_pair || !is_sliced(problem)) return of_pair;
    const auto pairs = static_cast<double>(slices(problem.K) * slices(problem.V));
    return pairs * *of_pair + (pairs - 1) * moves_us(1, added_bytes(first_pair(problem)));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    return Inner::candidate_configs(first_pair(problem), device);
  }
  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const Problem pair = first_pair(problem);
    return (is_sliced(problem) ? added_bytes(pair) : 0) + Inner::workspace_bytes(pair, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    if (!is_sliced(problem)) return Inner::run(problem, args, config, site);
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const LaunchSite rest{.stream = site.stream,
                          .workspace = site.workspace.subspan(added_bytes(first_pair(problem)))};
    for (auto keys = ChannelSlice::first_of(problem.K); keys.count > 0;
         keys = keys.next(problem.K)) {
      for (auto values = ChannelSlice::first_of(problem.V); values.count > 0;
           values = values.next(problem.V)) {
        Args pair = pair_of(args, keys, values);
        AddedOutputs added(site.workspace.data());
        redirect(added, pair, values.first > 0, keys.first > 0);
        Inner::run(pair_of(problem, keys, values), pair, config, rest);
        added.add(problem.dtype, stream);
      }
    }
  }

 private:
  static std::int64_t slices(std::int64_t channels) {
    return channels > ChannelSlice::kMost ? 2 : 1;
  }
  static bool is_sliced(const Problem& problem) {
    return slices(problem.K) > 1 || slices(problem.V) > 1;
  }
  static Problem pair_of(Problem problem, const ChannelSlice& keys, const ChannelSlice& values) {
    problem.aligned = has_whole_rows(problem);  // or slices' rows do not start where whole ones do
    problem.K = keys.count;
    problem.V = values.count;
    return problem;
  }
  static Problem first_pair(const Problem& problem) {
    if (!is_sliced(problem)) return problem;
    return pair_of(problem, ChannelSlice::first_of(problem.K), ChannelSlice::first_of(problem.V));
  }
  static Problem last_pair(const Problem& problem) {
    if (!is_sliced(problem)) return problem;
    const auto last = [](std::int64_t channels) {
      const auto first = ChannelSlice::first_of(channels);
      return first.count < channels ? first.next(channels) : first;
    };
    return pair_of(problem, last(problem.K), last(problem.V));
  }
  static Args pair_of(Args args, const ChannelSlice& keys, const ChannelSlice& values) {
    constexpr int kChannels = 3;  // dimension of rows
    const auto take = [](const ChannelSlice& slice, auto&... rows) {
      (slice.take(rows, kChannels), ...);
    };
    const auto take_blocks = [&](auto&... states) {
      constexpr int kRows = 2, kColumns = 3;
      (keys.take(states, kRows), ...);
      (values.take(states, kColumns), ...);
    };
    take(keys, args.q, args.k, args.dq, args.dk, args.gk, args.dgk);
    take(values, args.v, args.d_o, args.dv, args.gv, args.dgv);
    take_blocks(args.initial_state, args.dfinal_state, args.dinitial_state);
    return args;
  }
  /// What other slices of values, or of keys, have a part in, and the first of them have written.
  static void redirect(AddedOutputs& added, Args& pair, bool of_values, bool of_keys) {
    const auto redirect_given = [&](auto&... outputs) {
      ((outputs ? added.redirect(*outputs) : void()), ...);
    };
    if (of_values) {
      added.redirect(pair.dq);
      added.redirect(pair.dk);
      redirect_given(pair.dgk);
    }
    if (of_keys) {
      added.redirect(pair.dv);
      redirect_given(pair.dgv);
    }
    if (of_values || of_keys) redirect_given(pair.dg, pair.dgamma);
  }
  /// Of a pair of slices, if all its gradients are added.
  static std::size_t added_bytes(const Problem& pair) {
    WorkspaceParts parts(nullptr);
    const auto take = [&](std::int64_t rows, std::int64_t channels, std::size_t width) {
      parts.take(rows * padded_channels(channels) * static_cast<std::int64_t>(width));
    };
    const std::int64_t tokens = pair.B * pair.T;
    const std::size_t width = size_of(pair.dtype);
    take(tokens * pair.H, pair.K, width);
    take(tokens * pair.Hkv, pair.K, width);
    take(tokens * pair.Hkv, pair.V, width);
    if ((pair.gates & ops::kGateGk) != 0) take(tokens * pair.H, pair.K, sizeof(float));
    if ((pair.gates & ops::kGateGv) != 0) take(tokens * pair.H, pair.V, sizeof(float));
    if ((pair.gates & ops::kGateG) != 0) take(tokens * pair.H, 1, sizeof(float));
    if ((pair.gates & ops::kGateGamma) != 0) take(pair.sequences() * pair.H, 1, sizeof(float));
    return parts.used();
  }
};

}  // namespace attune::cuda
