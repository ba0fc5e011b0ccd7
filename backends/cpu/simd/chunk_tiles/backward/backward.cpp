// The gradients of chunked linear attention on the CPU's tile registers, for bf16.
//
// A task is a kv head of a sequence, with all query heads that share it, so results do not depend
// on the number of threads. Denormals count as zero.
#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_config.hpp"
#include "backward_params.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"

namespace attune::cpu::simd::chunk_tiles::backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;

/// Shorter sequences are left to other kernels: a last chunk that is half empty costs as much as a
/// full one.
constexpr std::int64_t kMinTokens = 64;

/// Narrower problems round as often and average less: operands, scores and states are rounded to
/// bf16.
constexpr std::int64_t kMinWidth = 16;

/// Nominal work that is worth a thread.
constexpr double kFlopsPerThread = 2e6;

/// By what 36 problems took beside simd.chunk.backward: T from 64 to 512, K = V from 16 to 128.
constexpr TokenCosts kCosts{.step = 32, .token = 71, .product = 0.034, .g = 41, .gk = 2};

constexpr std::int64_t kTileFloats = 256;
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileDepth = 32;
constexpr std::int64_t kVector = 16;

std::int64_t task_count(const Problem& problem) { return problem.sequences() * problem.Hkv; }

std::int64_t padded_tokens(const Problem& problem, const Config& config) {
  return round_up(problem.T, config.chunk);
}

// For constant decays twice as many states as for others, if the sequence is that long.
std::int64_t segment_tokens(const Problem& problem, const Config& config) {
  const bool has_gamma = (problem.gates & ops::kGateGamma) != 0;
  return tokens_between_states(config.anchor_tokens, has_gamma ? problem.T / 4 : problem.T);
}

// Rows are read where they lie, but for those that decay and those that do not fill tiles.
std::int64_t kept_chunks(const Problem& problem, const Config& config) {
  const bool has_gk = (problem.gates & ops::kGateGk) != 0;
  if (!has_gk && problem.K % kTileDepth == 0 && problem.V % kTileDepth == 0) return 0;
  return std::min<std::int64_t>(config.kept_tokens, padded_tokens(problem, config)) / config.chunk;
}

Scratch::Copies copies_layout(std::int64_t chunk, std::int64_t key_width, std::int64_t value_width,
                              bool has_gk) {
  ScratchLayout layout;
  Scratch::Copies copies;
  copies.q = layout.reserve(chunk * key_width / 2);
  copies.k = layout.reserve(chunk * key_width / 2);
  copies.v = layout.reserve(chunk * value_width / 2);
  copies.d_o = layout.reserve(chunk * value_width / 2);
  if (has_gk) {
    copies.decays = layout.reserve(chunk * key_width);
    copies.first = layout.reserve(key_width);
    copies.total = layout.reserve(key_width);
    copies.kept_rows = layout.reserve(1);
  }
  copies.size = layout.size();
  return copies;
}

Scratch scratch_layout(const Problem& problem, const Config& config) {
  const std::int64_t key_width = round_up(problem.K, kTileDepth);
  const std::int64_t value_width = round_up(problem.V, kTileDepth);
  const std::int64_t width = std::max(key_width, value_width);
  const std::int64_t state_size = key_width * value_width;
  const std::int64_t chunk = config.chunk;
  ScratchLayout layout;
  Scratch scratch;
  for (Scratch::State& state : scratch.states) {
    state.floats = layout.reserve(state_size);
    state.carries = layout.reserve(kVector);
  }
  scratch.transposed_pairs = layout.reserve(state_size / 2);
  scratch.state_pairs = layout.reserve(2 * width / kTileDepth * kTileFloats);
  for (std::int64_t* operand : {&scratch.queries, &scratch.keys, &scratch.writes}) {
    *operand = layout.reserve(chunk * width / 2);
  }
  scratch.values = layout.reserve(4 * chunk / kTileDepth * kTileFloats);
  scratch.sums = layout.reserve(chunk * chunk);
  scratch.key_sums = layout.reserve(chunk * chunk);
  scratch.scores = layout.reserve(chunk * chunk / 2);
  scratch.outputs = layout.reserve(8 * kTileFloats);
  scratch.decays = layout.reserve(width);
  scratch.partial = layout.reserve(chunk * kVector);
  scratch.zeros = layout.reserve(width);
  if (problem.H != problem.Hkv) {
    scratch.dk_sums = layout.reserve(problem.T * key_width);
    scratch.dv_sums = layout.reserve(problem.T * value_width);
  }
  const bool has_gates = problem.gates != 0;
  const std::int64_t between = segment_tokens(problem, config);
  const bool has_gk = (problem.gates & ops::kGateGk) != 0;
  scratch.dots = layout.reserve(has_gates && !has_gk ? padded_tokens(problem, config) : 0);
  scratch.checkpoints = layout.reserve(has_gates ? problem.T / between * state_size : 0);
  if (has_gk) {
    scratch.gate_rows = layout.reserve(chunk * key_width);
    scratch.q_rows = layout.reserve(chunk * key_width / 2);
    scratch.k_rows = layout.reserve(chunk * key_width / 2);
    scratch.centers = layout.reserve(key_width);
    scratch.exact_span = layout.reserve(3 * kTileRows * key_width);
    scratch.terms = layout.reserve(problem.T * key_width);
    scratch.gates = layout.reserve(key_width);
    scratch.state_decay = layout.reserve(key_width);
    scratch.gradient_decay = layout.reserve(key_width);
  }
  scratch.copies_of_chunk = copies_layout(chunk, key_width, value_width, has_gk);
  scratch.copies =
      layout.reserve((kept_chunks(problem, config) + 1) * scratch.copies_of_chunk.size);
  scratch.size = layout.size();
  return scratch;
}

Workspace workspace_of(const Problem& problem, const Config& config) {
  return workspace_for(problem, config.threads, task_count(problem),
                       scratch_layout(problem, config).size, true);
}

bool has_gamma(const Problem& problem) { return (problem.gates & ops::kGateGamma) != 0; }

/// The gradient of a constant decay sums up those of all tokens: each chunk's begin anew from the
/// state before it, or what rounding took from one's is in all of the next one's. With H = 2,
/// T = 700 the median error is 4 % of the tolerance with a state for each chunk of 64 tokens, and
/// 50 % with one for every other.
bool keeps_each_state(const Config& config) { return config.anchor_tokens <= config.chunk; }

class ChunkTilesBackwardKernel final : public SimdKernel<Config> {
 public:
  ChunkTilesBackwardKernel() : SimdKernel("simd.chunk_tiles.backward", 1) {}

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "packed", "h0", "ht", "reverse"};
  }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    const Support runs_here = SimdKernel::supports(problem, device);
    if (!runs_here) return runs_here;
    if (problem.dtype != DType::kBF16) return Support::no(refused::kDType, "takes bf16");
    if (has_gamma(problem) && (problem.gates & ops::kGateGk) != 0) {
      return Support::no(refused::kFeature, "takes no constant decay beside gk");
    }
    if (problem.gates != 0 && !problem.d_o) {  // their sums cancel beyond what bf16 can bear
      return Support::no(refused::kFeature, "takes gates only with a gradient of o");
    }
    if (problem.K < kMinWidth || problem.V < kMinWidth) {
      return Support::no(refused::kShape, str("takes K and V of at least ", kMinWidth));
    }
    if (problem.T < kMinTokens * std::max<std::int64_t>(1, problem.N)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kMinTokens, " tokens on average, or more"));
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (has_gamma(problem) && !keeps_each_state(config)) {
      return Support::no(refused::kConfig, "constant decays take no more anchor_tokens than chunk");
    }
    return SimdKernel::fits(problem, device, config);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const double work = ops::RecurrentAttentionBackward::flops(problem);
    return default_config(problem, device, useful_threads(work, kFlopsPerThread, device));
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    return simd::expected_us(kCosts, problem,
                             by_group(problem, 1, heuristic_config(problem, device).threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const Workspace layout = workspace_of(problem, config);
    Params params;
    static_cast<BackwardParams&>(params) =
        backward_params(problem, args, layout.arguments, site.workspace.data());
    params.chunk = config.chunk;
    params.segment_tokens = segment_tokens(problem, config);
    params.kept_chunks = kept_chunks(problem, config);
    params.stream = config.stream;
    params.scratch = scratch_layout(problem, config);
    const Instance compiled =
        instance_for<Config>(Config::kIsa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_backward(params, layout, task_count(problem), site.workspace, compiled.run);
    finish_backward(problem, args, params);
  }

 private:
  /// For at most `useful` threads.
  static Config default_config(const Problem& problem, const DeviceInfo& device,
                               std::int64_t useful) {
    const int threads =
        axis_value_for(&Config::threads, std::min(useful, problem.sequences() * problem.Hkv));
    return {.anchor_tokens = has_gamma(problem) ? Config{}.chunk : Config{}.anchor_tokens,
            .stream = streams_gradients(problem, device, threads),
            .threads = threads};
  }

  /// What is seldom best is tried without all combinations of the rest.
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const Config defaults = default_config(problem, device, device.cores);
    const bool one_value = problem.gates == 0 || has_gamma(problem);
    if (config.anchor_tokens != defaults.anchor_tokens && one_value) return false;
    const bool keeps_rows = (problem.gates & ops::kGateGk) != 0;
    if (config.kept_tokens != defaults.kept_tokens && !keeps_rows) return false;
    if (!full_or_half(config, &Config::threads, defaults.threads)) return false;
    const int changes =
        (config.threads != defaults.threads) + (config.anchor_tokens != defaults.anchor_tokens) +
        (config.kept_tokens != defaults.kept_tokens) + (config.stream != defaults.stream);
    return changes <= 1;
  }
};

}  // namespace
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<ChunkTilesBackwardKernel>(); }

}  // namespace attune::cpu::simd::chunk_tiles::backward
