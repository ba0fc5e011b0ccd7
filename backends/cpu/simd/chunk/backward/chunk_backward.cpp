#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_backward_launch.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/recurrent_attention/backward/streams_gradients.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"

namespace attune::cpu::simd {
namespace {

using Config = ChunkBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;
/// Shorter sequences, on average, are left to the recurrent kernel: a last chunk that is half empty
/// costs as much as a full one, and at 17 to 31 tokens that is a fifth to a third of the time.
constexpr std::int64_t kFewestTokens = 32;
constexpr int kChannelChunk = 16;

/// Fitted, but `product`, which is by what 120 problems took beside the recurrent kernel since.
constexpr TokenCosts kCosts{
    .step = 16, .token = 25, .channel = 0.83, .product = 0.0665, .g = 26, .gk = 1.8, .gv = 3.2};

bool has_channel_gates(const Problem& problem) {
  return (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0;
}

/// As few parts of groups as leave no thread without a task.
int parts_for(const Problem& problem, std::int64_t threads) {
  const std::int64_t tasks = std::max<std::int64_t>(1, problem.sequences() * problem.Hkv);
  const std::int64_t group = problem.H / problem.Hkv;
  return axis_value_for(&Config::group_parts, std::min(group, (threads + tasks - 1) / tasks));
}

int threads_for(const Problem& problem, std::int64_t useful, int parts) {
  const std::int64_t tasks =
      problem.sequences() * problem.Hkv * chunk_backward_parts(problem, {.group_parts = parts});
  return axis_value_for(&Config::threads, std::min(useful, tasks));
}

/// The gradient of a constant decay is a sum over all tokens that may cancel to a hundredth of what
/// the tokens' own have, and an error that runs on to the next state that is kept is added for each
/// of them. In f32, T = 200, H = 1 the median error is 0.5 % of the tolerance with a state every 32
/// tokens, 0.75 % with one every 64, and of 2400 problems one missed, or five.
constexpr int kAnchorTokensOfLongSums = 32;

bool has_long_sums(const Problem& problem) { return (problem.gates & ops::kGateGamma) != 0; }

/// For at most `useful` threads.
Config usual_config(const Problem& problem, const DeviceInfo& device, std::int64_t useful,
                    int parts) {
  const int threads = threads_for(problem, useful, parts);
  return {
      .anchor_tokens = has_long_sums(problem) ? kAnchorTokensOfLongSums : Config{}.anchor_tokens,
      .stream = streams_gradients(problem, device, threads),
      .group_parts = parts,
      .threads = threads,
      .isa = widest_isa(device)};
}

class ChunkBackwardKernel final : public SimdKernel<Config> {
 public:
  ChunkBackwardKernel() : SimdKernel("simd.chunk.backward", 2) {}

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (problem.T < kFewestTokens * std::max<std::int64_t>(1, problem.N)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kFewestTokens, " tokens on average, or more"));
    }
    return SimdKernel::supports(problem, device);
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.chunk != kChannelChunk && has_channel_gates(problem)) {
      return Support::no(refused::kConfig, str("gk and gv take chunk=", kChannelChunk));
    }
    if ((config.anchor_tokens == kAnchorTokensOfLongSums) != has_long_sums(problem)) {
      return Support::no(refused::kConfig, str("anchor_tokens=", kAnchorTokensOfLongSums,
                                               " is for constant decays, and no other"));
    }
    return SimdKernel::fits(problem, device, config);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttentionBackward::flops(problem), kFlopsPerThread, device);
    return usual_config(problem, device, useful, parts_for(problem, useful));
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    const std::int64_t parts = chunk_backward_parts(problem, config);
    return simd::expected_us(kCosts, problem, by_group(problem, parts, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return chunk_backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_chunk_backward(problem, args, config, site.workspace);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int parts = parts_for(problem, device.cores);
    if (config.group_parts != parts && config.group_parts != 1) return false;
    // What is seldom best is tried without all combinations of the rest.
    const Config usual = usual_config(problem, device, device.cores, config.group_parts);
    Config other = config;
    if (config.threads == half_of(&Config::threads, usual.threads)) other.threads = usual.threads;
    other.kept_tokens = usual.kept_tokens;
    other.stream = usual.stream;
    if (config.isa == Isa::kAvx2) other.isa = usual.isa;
    if (problem.gates != 0) other.anchor_tokens = usual.anchor_tokens;
    const int changes = (config.threads != other.threads) + (config.isa != other.isa) +
                        (config.anchor_tokens != other.anchor_tokens) +
                        (config.kept_tokens != other.kept_tokens) +
                        (config.stream != other.stream) + (config.chunk != usual.chunk);
    other.chunk = usual.chunk;
    return other == usual && changes <= 1;
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_backward() {
  return std::make_unique<ChunkBackwardKernel>();
}

}  // namespace attune::cpu::simd
