// Recurrent linear attention on the CPU, a few tokens at a time.
//
//   S_t[i, j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i, j] + k_t[i] v_t[j]
//   o_t[j]    = scale * sum_i q_t[i] S_t[i, j]
//
// The state is fp32 whatever the storage type. A task is a sequence, a few query heads that advance
// together and a tile of V. Tasks write disjoint outputs and a sum over K is never split, so
// results do not depend on the number of threads, nor on tile_v, heads, passes, stream and what is
// fetched ahead. Denormals count as zero.
#include <algorithm>
#include <bit>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"
#include "recurrent_attention_config.hpp"
#include "recurrent_attention_params.hpp"

namespace attune::cpu::simd::recurrent_attention {
namespace {

using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

constexpr TokenCosts kCosts{
    .step = 4, .token = 5.6, .channel = 0.28, .product = 0.0252, .g = 12.8, .gk = 0.59, .gv = 0.63};

Scratch scratch_layout(const Problem& problem, const Tiling& tiling, std::int64_t lanes) {
  const std::int64_t tokens = tiling.tokens_per_pass, passes = tiling.passes;
  const std::int64_t heads = tiling.heads, tile_v = tiling.tile_v, rows = problem.K;
  const std::int64_t padded_rows = round_up(rows, lanes);
  ScratchLayout layout;
  Scratch scratch;
  scratch.state = layout.reserve(heads * rows * tile_v);
  scratch.coefficients = layout.reserve(passes * (2 * tokens + 1) * padded_rows);
  scratch.q_rows = layout.reserve(tokens * padded_rows);
  scratch.k_rows = layout.reserve(tokens * padded_rows);
  scratch.key_decays = layout.reserve(tokens * padded_rows);
  scratch.key_carries = layout.reserve(heads * padded_rows);
  scratch.v_rows = layout.reserve(passes * tokens * tile_v);
  scratch.o_rows = layout.reserve(passes * tokens * tile_v);
  scratch.value_decays = layout.reserve(passes * tokens * tile_v);
  scratch.value_totals = layout.reserve(passes * tile_v);
  scratch.value_carries = layout.reserve(heads * tile_v);
  scratch.staged = layout.reserve(heads * staged_floats(problem, tile_v));
  scratch.size = layout.size();
  return scratch;
}

Tiling tiling_of(const Problem& problem, const Config& config, bool in_place = false) {
  const std::int64_t wanted = std::min<std::int64_t>(config.tile_v, problem.V);
  Tiling tiling;
  tiling.tokens_per_pass = config.tokens_per_pass;
  tiling.heads = std::min<std::int64_t>(config.heads, problem.H);
  tiling.block_vectors = kSumsPerPass / config.tokens_per_pass;
  tiling.tile_v = round_up(wanted, lanes(config.isa));
  tiling.tiles = round_up(problem.V, tiling.tile_v) / tiling.tile_v;
  tiling.passes = config.passes;
  tiling.prefetch = config.prefetch;
  tiling.prefetch_state = config.prefetch_state;
  // What is updated in place was just read: it is in the cache. So is what is yet to be rounded.
  tiling.stream = config.stream && !in_place && problem.state_dtype == DType::kF32;
  tiling.scratch = scratch_layout(problem, tiling, lanes(config.isa));
  return tiling;
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  const Tiling tiling = tiling_of(problem, config);
  const std::int64_t groups = round_up(problem.H, tiling.heads) / tiling.heads;
  return problem.sequences() * groups * tiling.tiles;
}

Workspace workspace_of(const Problem& problem, const Config& config) {
  return workspace_for(problem, config.threads, task_count(problem, config),
                       tiling_of(problem, config).scratch.size, false);
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

static_assert(Config{}.passes == kMaxPasses && Config{}.heads == kMaxHeads);

/// As many as there are: with more than T, a pass falls back to what of them there is.
int most_tokens(const Problem& problem) {
  const auto tokens = static_cast<std::uint64_t>(std::max<std::int64_t>(problem.T, 1));
  return axis_value_for(&Config::tokens_per_pass,
                        static_cast<std::int64_t>(std::bit_floor(tokens)));
}

/// Whether the states that a thread reads and writes are more than its own caches hold.
///
/// Measured on a Sapphire Rapids with 2 MiB of L2, T = 1, D = 128: writing past the caches takes
/// 0.7 times as long at 8 MiB a thread, half as long from 32 MiB on, 1.1 times as long at 2 MiB
/// and 1.3 times below.
bool states_exceed_caches(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const std::int64_t state = problem.H * problem.K * problem.V * std::int64_t{sizeof(float)};
  const std::int64_t both = 2 * problem.sequences() * state;
  return both / config.threads > std::max<std::int64_t>(device.l2_bytes, 1 << 20);
}

/// How many times a thread's own caches hold its share of `bytes`.
double caches_of(double bytes, const DeviceInfo& device, const Config& config) {
  return bytes / config.threads / static_cast<double>(device.l2_bytes);
}

/// Each of several threads has that many tasks, so that others can help one whose core is slow.
///
/// Measured on 2 cores of a Sapphire Rapids, a virtual machine, H = 16, T from 512 to 2048: 8 tasks
/// of 2 heads take 0.73 to 0.87 times as long as 2 of 8 heads in processes that neighbours disturb,
/// 0.95 to 1.02 times in quiet ones; on one core 2 heads take 1.02 to 1.06 times as long.
constexpr std::int64_t kTasksOfThread = 4;

/// As many heads as may advance together: their states stay in a thread's own caches, and no thread
/// is left with less to do than others.
int most_heads(const Problem& problem, const DeviceInfo& device, Config config) {
  const std::int64_t state = problem.K * problem.V * std::int64_t{sizeof(float)};
  const auto tasks = [&](int heads) {
    config.heads = heads;
    return task_count(problem, config);
  };
  const auto of_busiest_thread = [&](int heads) {
    return (tasks(heads) + config.threads - 1) / config.threads * heads;
  };
  const auto are_few_tasks = [&](int heads) {
    return config.threads > 1 && tasks(heads) < kTasksOfThread * config.threads;
  };
  int heads = Config{}.heads;
  while (heads > 1 && (heads * state > std::max<std::int64_t>(device.l2_bytes, 1 << 20) / 2 ||
                       of_busiest_thread(heads) > of_busiest_thread(1) || are_few_tasks(heads))) {
    heads /= 2;
  }
  return heads;
}

/// Together, where tokens lie on more pages than a TLB remembers: their rows of a token share one.
///
/// Measured on one core of a Sapphire Rapids, T = 512 to 4096, 8 heads take 0.75 to 0.94 times as
/// long together as one by one; on huge pages 1.03 to 1.10 times at D = 64 up to T = 2048, 0.80 to
/// 0.98 times beyond and at D = 128. On 4 cores at T = 512, D = 64, 1.1 times as long.
int heads_for(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const bool apart = problem.layout == ops::Layout::kBhtd || problem.T <= config.tokens_per_pass;
  Problem without_states = problem;
  without_states.h0 = without_states.ht = without_states.pool = false;
  without_states.snapshot_every = 0;
  const double bytes = ops::RecurrentAttention::bytes(without_states);
  if (apart || caches_of(bytes, device, config) < 2) return 1;
  return most_heads(problem, device, config);
}

/// Over a few columns at a time. Fewer where heads take turns: more would push the other heads'
/// rows out of the first cache.
int passes_for(const Problem& problem, const Config& config) {
  if (problem.T <= config.tokens_per_pass) return 1;
  return config.heads > 1 ? 2 : 4;
}

class RecurrentAttentionKernel final : public SimdKernel<Config> {
 public:
  RecurrentAttentionKernel() : SimdKernel("simd.recurrent_attention", 3) {}

  std::vector<std::string_view> features() const override { return forward_features(); }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttention::flops(problem), kFlopsPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    config.tokens_per_pass = most_tokens(problem);
    config.heads = 1;
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    config.heads = heads_for(problem, device, config);
    config.passes = passes_for(problem, config);
    const double bytes = ops::RecurrentAttention::bytes(problem);
    config.prefetch = config.passes > 1 && caches_of(bytes, device, config) > 1;
    config.stream = problem.reads_states() && problem.writes_states() &&
                    states_exceed_caches(problem, device, config);
    if (config.tokens_per_pass == 1 && problem.reads_states()) {
      config.prefetch_state = config.stream ? 1024 : 512;
    }
    return config;
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    return simd::expected_us(kCosts, problem, by_head(problem, config.tile_v, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    // What is updated in place was just read: it is in the cache.
    const void* const read = args.initial_state ? args.initial_state->data : nullptr;
    const void* const written = args.final_state ? args.final_state->data : nullptr;
    const bool in_place = problem.pool ? !problem.initial_slots : read == written;
    const Tiling tiling = tiling_of(problem, config, in_place);
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_forward(problem, args, workspace_of(problem, config), task_count(problem, config),
                   site.workspace,
                   [&](const ForwardParams& params, std::int64_t first, std::int64_t last,
                       float* scratch) { compiled.run(tiling, params, first, last, scratch); });
  }

 private:
  /// Per axis that leaves what measured best somewhere: instruction sets narrower than AVX2, and
  /// fewer tokens a pass than two, never did where there was a choice.
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    // What costs least comes first: it leaves one in a hundred points of the axes.
    const bool one_pass = problem.T <= config.tokens_per_pass;
    const bool reads = problem.reads_states();
    if (config.prefetch_state != 0 && !(problem.T == 1 && reads)) return false;
    if (config.stream && !(reads && problem.writes_states())) return false;
    if (one_pass && config.prefetch) return false;
    if (config.passes != passes_for(problem, config)) return false;
    if (!full_or_half(config, &Config::tokens_per_pass, most_tokens(problem))) return false;
    const int tile_v = axis_value_for(&Config::tile_v, problem.V);
    if (config.tile_v > tile_v) return false;
    const int threads = threads_for(problem, config, device.cores);
    if (!full_or_half(config, &Config::threads, threads)) return false;
    const bool is_plain = config.tile_v == tile_v && config.threads == threads;
    if (config.stream && !is_plain) return false;
    const Isa widest = widest_isa(device);
    const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512 && !config.stream;
    if (config.isa != widest && !(narrower && is_plain)) return false;
    if (config.heads == 1) return true;
    return is_plain && !one_pass && config.heads == most_heads(problem, device, config);
  }
};

}  // namespace
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<RecurrentAttentionKernel>(); }

}  // namespace attune::cpu::simd::recurrent_attention
