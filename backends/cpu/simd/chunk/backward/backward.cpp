// The gradients of chunked linear attention on the CPU.
//
// A task is a sequence, a kv head and a part of the query heads that share it: its heads add to dk
// and dv one after the other, and the parts are added up in their order at the end. How many parts
// there are is a config's, so results do not depend on the number of threads. Denormals count as
// zero.
#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_config.hpp"
#include "backward_params.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"

namespace attune::cpu::simd::chunk::backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

/// Shorter sequences, on average, are left to the recurrent kernel: a last chunk that is half empty
/// costs as much as a full one, and at 17 to 31 tokens that is a fifth to a third of the time.
constexpr std::int64_t kMinTokens = 32;
constexpr int kChannelChunk = 16;

/// Fitted, but `product`, which is by what 120 problems took beside the recurrent kernel since.
constexpr TokenCosts kCosts{
    .step = 16, .token = 25, .channel = 0.83, .product = 0.0665, .g = 26, .gk = 1.8, .gv = 3.2};

/// How many parts the heads that share a kv head are cut into.
std::int64_t parts_of(const Problem& problem, const Config& config) {
  return std::min<std::int64_t>(config.group_parts, problem.H / problem.Hkv);
}

constexpr std::int64_t kPanelChannels = 16;
constexpr std::int64_t kBlockTokens = 4;  // of which decays per channel are multiplied at a time

/// Ratios, three rows, and the total.
std::int64_t shared_decay_floats(std::int64_t chunk) { return chunk * chunk + 3 * chunk + 1; }

std::int64_t padded_tokens(const Problem& problem, const Config& config) {
  return round_up(problem.T, config.chunk);
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.Hkv * parts_of(problem, config);
}

Scratch::Side side_layout(ScratchLayout& layout, const Problem& problem, const Config& config,
                          std::int64_t width, bool has_gates) {
  Scratch::Side side;
  for (std::int64_t* rows : {&side.decayed_reads, &side.decayed_writes, &side.local_reads,
                             &side.local_writes, &side.sums, &side.transposed}) {
    *rows = layout.reserve(config.chunk * width);
  }
  for (std::int64_t* row : {&side.carries, &side.gate}) *row = layout.reserve(width);
  side.terms = layout.reserve(has_gates ? padded_tokens(problem, config) * width : 0);
  const std::int64_t parts = parts_of(problem, config);
  const bool sums = parts == 1 && problem.H > problem.Hkv;
  side.group_sum = layout.reserve(sums ? padded_tokens(problem, config) * width : 0);
  return side;
}

std::int64_t kept_chunks(const Problem& problem, const Config& config) {
  return std::min<std::int64_t>(config.kept_tokens, padded_tokens(problem, config)) / config.chunk;
}

Scratch::PackedSide packed_side_layout(ScratchLayout& layout, const Config& config,
                                       std::int64_t width, bool has_gates) {
  Scratch::PackedSide side;
  side.reads = layout.reserve(config.chunk * width);
  side.writes = layout.reserve(config.chunk * width);
  if (!has_gates) return side;
  side.decays = layout.reserve(config.chunk * width);
  side.block_decays = layout.reserve(config.chunk / kBlockTokens * width);
  side.totals = layout.reserve(width);
  return side;
}

Scratch::Packed packed_layout(const Problem& problem, const Config& config, std::int64_t key_width,
                              std::int64_t value_width) {
  ScratchLayout layout;
  Scratch::Packed packed;
  packed.keys = packed_side_layout(layout, config, key_width, (problem.gates & ops::kGateGk) != 0);
  packed.values =
      packed_side_layout(layout, config, value_width, (problem.gates & ops::kGateGv) != 0);
  const bool has_shared =
      (problem.gates & (ops::kGateG | ops::kGateGamma)) != 0 && (problem.gates & ops::kGateGk) == 0;
  packed.shared_decays = layout.reserve(has_shared ? shared_decay_floats(config.chunk) : 0);
  packed.size = layout.size();
  return packed;
}

Scratch scratch_layout(const Problem& problem, const Config& config) {
  const std::int64_t key_width = round_up(problem.K, kPanelChannels);
  const std::int64_t value_width = round_up(problem.V, kPanelChannels);
  const std::int64_t state = value_width * key_width;
  const std::int64_t tokens = padded_tokens(problem, config);
  const std::int64_t between = tokens_between_states(config.anchor_tokens, problem.T);
  ScratchLayout layout;
  Scratch scratch;
  scratch.keys =
      side_layout(layout, problem, config, key_width, (problem.gates & ops::kGateGk) != 0);
  scratch.values =
      side_layout(layout, problem, config, value_width, (problem.gates & ops::kGateGv) != 0);
  scratch.packed_chunk = packed_layout(problem, config, key_width, value_width);
  scratch.packed = layout.reserve((kept_chunks(problem, config) + 1) * scratch.packed_chunk.size);
  scratch.row_totals = layout.reserve(value_width);
  scratch.state = layout.reserve(state);
  scratch.dstate = layout.reserve(state);
  scratch.checkpoints = layout.reserve(problem.gates != 0 ? problem.T / between * state : 0);
  scratch.pairs = layout.reserve(tokens * config.chunk);
  scratch.key_pairs = layout.reserve(config.chunk * config.chunk);
  scratch.ratios = layout.reserve(config.chunk * config.chunk);
  scratch.dots = layout.reserve(tokens);
  scratch.size = layout.size();
  return scratch;
}

struct SumWorkspace : Workspace {
  std::int64_t partial_chunks = 0;
  std::size_t partial_sums = 0;  // float, of parts of groups; in bytes from the start
};

SumWorkspace workspace_of(const Problem& problem, const Config& config) {
  SumWorkspace layout{workspace_for(problem, config.threads, task_count(problem, config),
                                    scratch_layout(problem, config).size, true)};
  const std::int64_t parts = parts_of(problem, config);
  if (parts == 1) return layout;
  const std::int64_t chunks = padded_tokens(problem, config) / config.chunk;
  layout.partial_chunks = problem.N > 0 ? chunks + problem.N : problem.B * chunks;
  const std::int64_t width =
      round_up(problem.K, kPanelChannels) + round_up(problem.V, kPanelChannels);
  const std::int64_t floats = problem.Hkv * parts * layout.partial_chunks * config.chunk * width;
  layout.partial_sums =
      reserve_aligned(layout.size, static_cast<std::size_t>(floats) * sizeof(float));
  return layout;
}

Params params_of(const Problem& problem, const ops::RecurrentAttentionBackwardArgs& args,
                 const Config& config, const SumWorkspace& layout, std::byte* memory) {
  Params params;
  static_cast<BackwardParams&>(params) = backward_params(problem, args, layout.arguments, memory);
  params.chunk = config.chunk;
  params.segment_tokens = tokens_between_states(config.anchor_tokens, problem.T);
  params.stream = config.stream;
  params.kept_chunks = kept_chunks(problem, config);
  params.group_parts = parts_of(problem, config);
  // Aligned by reserve_aligned().
  params.partial_sums = reinterpret_cast<float*>(memory + layout.partial_sums);
  params.partial_chunks = layout.partial_chunks;
  params.scratch = scratch_layout(problem, config);
  return params;
}

void add_parts_up(const Params& params, std::int64_t threads, const Instance& compiled) {
  const ForwardParams& f = params.forward;
  const std::int64_t tokens = params.chunk * kChunksOfSum;
  const std::int64_t tasks = f.sequences * f.kv_heads * ((f.tokens + tokens - 1) / tokens);
  if (tasks == 0) return;
  run_task_queue(tasks, std::min(threads, tasks),
                 [&](std::int64_t, std::int64_t first, std::int64_t last) {
                   const FlushDenormals flush_denormals;
                   compiled.sum(params, first, last);
                 });
}

bool has_channel_gates(const Problem& problem) {
  return (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0;
}

/// As few parts of groups as leave no thread without a task.
int parts_for(const Problem& problem, std::int64_t threads) {
  const std::int64_t tasks = std::max<std::int64_t>(1, problem.sequences() * problem.Hkv);
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  return axis_value_for(&Config::group_parts,
                        std::min(heads_per_kv, (threads + tasks - 1) / tasks));
}

int threads_for(const Problem& problem, std::int64_t useful, int parts) {
  const std::int64_t tasks =
      problem.sequences() * problem.Hkv * parts_of(problem, {.group_parts = parts});
  return axis_value_for(&Config::threads, std::min(useful, tasks));
}

/// The gradient of a constant decay is a sum over all tokens that may cancel to a hundredth of what
/// the tokens' own have, and an error that runs on to the next state that is kept is added for each
/// of them. In f32, T = 200, H = 1 the median error is 0.5 % of the tolerance with a state every 32
/// tokens, 0.75 % with one every 64, and of 2400 problems one missed, or five.
constexpr int kAnchorTokensOfLongSums = 32;

bool has_long_sums(const Problem& problem) { return (problem.gates & ops::kGateGamma) != 0; }

/// For at most `useful` threads.
Config default_config(const Problem& problem, const DeviceInfo& device, std::int64_t useful,
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

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (problem.T < kMinTokens * std::max<std::int64_t>(1, problem.N)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kMinTokens, " tokens on average, or more"));
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
    return default_config(problem, device, useful, parts_for(problem, useful));
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    const std::int64_t parts = parts_of(problem, config);
    return simd::expected_us(kCosts, problem, by_group(problem, parts, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const SumWorkspace layout = workspace_of(problem, config);
    const Params params = params_of(problem, args, config, layout, site.workspace.data());
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_backward(params, layout, task_count(problem, config), site.workspace, compiled.run);
    if (params.group_parts > 1) add_parts_up(params, config.threads, compiled);
    finish_backward(problem, args, params);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int parts = parts_for(problem, device.cores);
    if (config.group_parts != parts && config.group_parts != 1) return false;
    // What is seldom best is tried without all combinations of the rest.
    const Config defaults = default_config(problem, device, device.cores, config.group_parts);
    Config other = config;
    if (config.threads == half_of(&Config::threads, defaults.threads))
      other.threads = defaults.threads;
    other.kept_tokens = defaults.kept_tokens;
    other.stream = defaults.stream;
    if (config.isa == Isa::kAvx2) other.isa = defaults.isa;
    if (problem.gates != 0) other.anchor_tokens = defaults.anchor_tokens;
    const int changes = (config.threads != other.threads) + (config.isa != other.isa) +
                        (config.anchor_tokens != other.anchor_tokens) +
                        (config.kept_tokens != other.kept_tokens) +
                        (config.stream != other.stream) + (config.chunk != defaults.chunk);
    other.chunk = defaults.chunk;
    return other == defaults && changes <= 1;
  }
};

}  // namespace
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<ChunkBackwardKernel>(); }

}  // namespace attune::cpu::simd::chunk::backward
