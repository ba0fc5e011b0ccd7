#include <algorithm>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/recurrent_attention/backward/streams_gradients.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"
#include "tiles_backward_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Config = TilesBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Shorter sequences are left to other kernels: a last chunk that is half empty costs as much as a
/// full one.
constexpr std::int64_t kFewestTokens = 64;

/// Narrower problems round as often and average less: operands, pairs and states are rounded to
/// bf16.
constexpr std::int64_t kLeastWidth = 16;

/// Nominal work that is worth a thread.
constexpr double kFlopsPerThread = 2e6;

/// By what 36 problems took beside simd.chunk.backward: T from 64 to 512, K = V from 16 to 128.
constexpr TokenCosts kCosts{.step = 32, .token = 71, .product = 0.034, .g = 41, .gk = 2};

bool has_gamma(const Problem& problem) { return (problem.gates & ops::kGateGamma) != 0; }

/// The gradient of a constant decay sums up those of all tokens: each chunk's begin anew from the
/// state before it, or what rounding took from one's is in all of the next one's. With H = 2,
/// T = 700 the median error is 4 % of the tolerance with a state for each chunk of 64 tokens, and
/// 50 % with one for every other.
bool keeps_each_state(const Config& config) { return config.anchor_tokens <= config.chunk; }

class ChunkTilesBackwardKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "simd.chunk_tiles.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "cpu") return Support::no(refused::kDevice, "needs host memory");
    const std::string_view missing = missing_for_tiles(device);
    if (!missing.empty())
      return Support::no(refused::kDevice, str("needs ", missing, ", which this CPU has not"));
    if (problem.dtype != DType::kBF16) return Support::no(refused::kDType, "takes bf16");
    if (has_gamma(problem) && (problem.gates & ops::kGateGk) != 0) {
      return Support::no(refused::kFeature, "takes no constant decay beside gk");
    }
    if (problem.K < kLeastWidth || problem.V < kLeastWidth) {
      return Support::no(refused::kShape, str("takes K and V of at least ", kLeastWidth));
    }
    if (problem.T < kFewestTokens * std::max<std::int64_t>(1, problem.N)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kFewestTokens, " tokens on average, or more"));
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (has_gamma(problem) && !keeps_each_state(config)) {
      return Support::no(refused::kConfig, "constant decays take no more anchor_tokens than chunk");
    }
    return Kernel::fits(problem, device, config);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const double work = ops::RecurrentAttentionBackward::flops(problem);
    return usual_config(problem, device, useful_threads(work, kFlopsPerThread, device));
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs,
                  [&](const Config& config) { return !is_candidate(problem, device, config); });
    return configs;
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    return simd::expected_us(kCosts, problem,
                             by_group(problem, 1, heuristic_config(problem, device).threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return tiles_backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_tiles_backward(problem, args, config, site.workspace);
  }

 private:
  /// For at most `useful` threads.
  static Config usual_config(const Problem& problem, const DeviceInfo& device,
                             std::int64_t useful) {
    const int threads =
        axis_value_for(&Config::threads, std::min(useful, problem.sequences() * problem.Hkv));
    return {.anchor_tokens = has_gamma(problem) ? Config{}.chunk : Config{}.anchor_tokens,
            .stream = streams_gradients(problem, device, threads),
            .threads = threads};
  }

  /// What is seldom best is tried without all combinations of the rest.
  static bool is_candidate(const Problem& problem, const DeviceInfo& device, const Config& config) {
    const Config usual = usual_config(problem, device, device.cores);
    const bool one_value = problem.gates == 0 || has_gamma(problem);
    if (config.anchor_tokens != usual.anchor_tokens && one_value) return false;
    const bool keeps_rows = (problem.gates & ops::kGateGk) != 0;
    if (config.kept_tokens != usual.kept_tokens && !keeps_rows) return false;
    if (has_gamma(problem) && !keeps_each_state(config)) return false;
    if (!full_or_half(config, &Config::threads, usual.threads)) return false;
    const int changes = (config.threads != usual.threads) +
                        (config.anchor_tokens != usual.anchor_tokens) +
                        (config.kept_tokens != usual.kept_tokens) + (config.stream != usual.stream);
    return changes <= 1;
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_tiles_backward() {
  return std::make_unique<ChunkTilesBackwardKernel>();
}

}  // namespace attune::cpu::simd
