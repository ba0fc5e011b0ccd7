// A step of a few tokens a sequence on the CPU, each state updated where it lies.
//
// Tasks write disjoint outputs and states and a sum over K is never split, so results depend
// neither on the number of threads nor on tile_v. Denormals count as zero.
#include <algorithm>

#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"
#include "decode_config.hpp"
#include "decode_params.hpp"

namespace attune::cpu::simd::decode {
namespace {

using Problem = ops::RecurrentDecodeProblem;

/// Of the states, read and written, that are worth a thread. Measured on 16 cores of a Sapphire
/// Rapids, calls back to back, D = 64, B = 1: 2, 4 and 8 threads are 0.80, 0.74 and 0.83 times as
/// fast as one with 4 heads, 1.32, 1.33 and 1.20 with 8, 1.13, 1.39 and 1.31 with 16, 1.23, 1.60
/// and 1.75 with 32.
constexpr double kBytesPerThread = 1 << 18;

Scratch scratch_layout(const Problem& problem, std::int64_t tile_v, std::int64_t lanes) {
  const std::int64_t padded_keys = round_up(problem.K, lanes);
  const std::int64_t tokens = problem.tokens() + problem.R;
  const std::int64_t pass = std::min(tokens, kMaxPassTokens);
  ScratchLayout layout;
  Scratch scratch;
  scratch.coefficients = layout.reserve(tokens * kDecodeCoefficients * padded_keys);
  for (std::int64_t* row : {&scratch.q_rows, &scratch.k_rows, &scratch.key_decays}) {
    *row = layout.reserve(pass * padded_keys);
  }
  scratch.key_carry = layout.reserve(padded_keys);
  for (std::int64_t* row : {&scratch.v_rows, &scratch.value_decays, &scratch.value_totals}) {
    *row = layout.reserve(tokens * tile_v);
  }
  scratch.value_carry = layout.reserve(tile_v);
  scratch.o_rows = layout.reserve((problem.tokens() + 1) * tile_v);
  scratch.state = layout.reserve(problem.K * std::min(tile_v, kDecodeBlockVectors * lanes));
  scratch.size = layout.size();
  return scratch;
}

Params sizes_of(const Problem& problem, const Config& config) {
  Params params;
  params.rows = problem.B;
  params.tokens = problem.tokens();
  params.heads = problem.H;
  params.kv_heads = problem.Hkv;
  params.key_dim = problem.K;
  params.value_dim = problem.V;
  params.tile_v = round_up(std::min<std::int64_t>(config.tile_v, problem.V), lanes(config.isa));
  params.tiles = round_up(problem.V, params.tile_v) / params.tile_v;
  params.prefetch_columns = config.prefetch;
  params.scratch = scratch_layout(problem, params.tile_v, lanes(config.isa));
  return params;
}

std::size_t scratch_bytes(const Params& sizes) {
  return static_cast<std::size_t>(sizes.scratch.size) * sizeof(float);
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  return problem.B * problem.H * sizes_of(problem, config).tiles;
}

/// What lies where in the workspace, in bytes.
struct DecodeWorkspace {
  std::int64_t threads = 0;
  // From the start on, each thread's scratch memory.
  std::size_t slots = 0;  // RowSlots [B], where a row is not its slot and no more
  std::size_t kept = 0;   // int64 [B, T], when they are given
  std::size_t gamma = 0;  // float [H], when there is a constant decay
  std::size_t size = 0;

  std::size_t reserve(std::size_t bytes) { return reserve_aligned(size, bytes); }
};

DecodeWorkspace workspace_of(const Problem& problem, const Config& config) {
  DecodeWorkspace layout;
  layout.threads = std::min<std::int64_t>(config.threads, task_count(problem, config));
  layout.reserve(static_cast<std::size_t>(layout.threads) *
                 scratch_bytes(sizes_of(problem, config)));
  const auto rows = static_cast<std::size_t>(problem.B);
  const bool has_slots = problem.slots || problem.kept || problem.R > 0;
  layout.slots = layout.reserve(has_slots ? rows * sizeof(RowSlots) : 0);
  const std::size_t states = problem.kept ? rows * static_cast<std::size_t>(problem.tokens()) : 0;
  layout.kept = layout.reserve(states * sizeof(std::int64_t));
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  layout.gamma =
      layout.reserve(constant_decay ? static_cast<std::size_t>(problem.H) * sizeof(float) : 0);
  return layout;
}

// On every launch: a plan's indices change between launches. Memory is aligned by
// reserve_aligned().

const RowSlots* checked_slots(const Problem& problem, const ops::RecurrentDecodeArgs& args,
                              std::byte* memory) {
  auto* const slots = reinterpret_cast<RowSlots*>(memory);
  for (std::int64_t row = 0; row < problem.B; ++row) {
    const ops::DecodeRow is = ops::decode_row(problem, args, row);
    slots[row] = {.start = is.start, .committed = is.committed};
  }
  return slots;
}

const std::int64_t* checked_kept_slots(const Problem& problem, const ops::RecurrentDecodeArgs& args,
                                       std::byte* memory) {
  auto* const slots = reinterpret_cast<std::int64_t*>(memory);
  for (std::int64_t row = 0; row < problem.B; ++row) {
    for (std::int64_t t = 0; t < problem.tokens(); ++t) {
      slots[row * problem.tokens() + t] = ops::kept_slot(problem, args, row, t);
    }
  }
  return slots;
}

/// A tensor of tokens; one without their dimension has one a row.
template <class View>
auto step_tensor(const View& view, bool has_tokens) {
  return has_tokens ? token_tensor(view) : one_token_tensor(view);
}

Params params_of(const Problem& problem, const ops::RecurrentDecodeArgs& args, const Config& config,
                 const DecodeWorkspace& layout, std::byte* memory) {
  Params params = sizes_of(problem, config);
  const bool has_tokens = problem.T > 0;
  params.q = step_tensor(args.q, has_tokens);
  params.o = step_tensor(args.o, has_tokens);
  params.fresh = {.k = step_tensor(args.k, has_tokens),
                  .v = step_tensor(args.v, has_tokens),
                  .g = step_tensor(args.g, has_tokens),
                  .gk = step_tensor(args.gk, has_tokens),
                  .gv = step_tensor(args.gv, has_tokens)};
  params.committed = {.k = token_tensor(args.committed_k),
                      .v = token_tensor(args.committed_v),
                      .g = token_tensor(args.committed_g),
                      .gk = token_tensor(args.committed_gk),
                      .gv = token_tensor(args.committed_gv)};
  params.g_gamma = gamma_values(args.gamma, 1, problem.H, memory + layout.gamma).values;
  params.scale = static_cast<float>(args.scale);
  params.state = state_tensor<void>(args.state);
  params.state_type = storage_type(problem.state_dtype);
  params.stochastic = problem.rounding == StateRounding::Kind::kStochastic;
  params.seed = args.rounding.seed;
  if (problem.slots || problem.kept || problem.R > 0) {
    params.slots = checked_slots(problem, args, memory + layout.slots);
  }
  if (problem.kept) params.kept = checked_kept_slots(problem, args, memory + layout.kept);
  params.stores_last = !problem.kept && problem.R == 0;
  return params;
}

bool is_one_token(const Problem& problem) {
  return problem.T == 0 && problem.R == 0 && !problem.kept &&
         problem.rounding == StateRounding::Kind::kNearest;
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

/// How far ahead a state is fetched that no cache of its core holds; one that does is there in
/// time. Measured on 16 cores of a Sapphire Rapids: 0.8 to 0.9 times as long without, from 64 KiB
/// to 1 MiB of states a core; as long, or 1.1 times as long, beyond 2 MiB.
int prefetch_for(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const double bytes = ops::RecurrentDecode::bytes(problem) / 2 / config.threads;
  return bytes > static_cast<double>(device.l2_bytes) ? 1024 : 0;
}

class RecurrentDecodeKernel final : public SimdKernel<Config> {
 public:
  RecurrentDecodeKernel() : SimdKernel("simd.decode", 1) {}

  std::vector<std::string_view> features() const override {
    return {"g",
            "gamma",
            "gk",
            "gv",
            "slots",
            "tokens",
            "replay",
            "kept",
            "state=f16",
            "state=bf16",
            "rounding=stochastic"};
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentDecode::bytes(problem), kBytesPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    config.prefetch = prefetch_for(problem, device, config);
    return config;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const std::int64_t tasks = task_count(problem, config);
    if (tasks == 0) return;
    const DecodeWorkspace layout = workspace_of(problem, config);
    const Params params = params_of(problem, args, config, layout, site.workspace.data());
    auto* const memory = reinterpret_cast<float*>(site.workspace.data());  // aligned by contract
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    const Instance::Run run_tasks = is_one_token(problem) ? compiled.run_one_token : compiled.run;
    run_task_shares(tasks, layout.threads,
                    [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                      const FlushDenormals flush_denormals;
                      run_tasks(params, first, last, memory + thread * params.scratch.size);
                    });
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int tile_v = axis_value_for(&Config::tile_v, problem.V);
    const int threads = threads_for(problem, config, device.cores);
    const Isa widest = widest_isa(device);
    const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512;
    return full_or_half(config, &Config::tile_v, tile_v) &&
           (config.threads == 1 || full_or_half(config, &Config::threads, threads)) &&
           (config.isa == widest || (narrower && config.tile_v == tile_v));
  }
};

}  // namespace
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<RecurrentDecodeKernel>(); }

}  // namespace attune::cpu::simd::decode
