// One token a sequence on the CPU, each state updated where it lies.
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

Scratch scratch_layout(std::int64_t key_dim, std::int64_t tile_v, std::int64_t lanes) {
  const std::int64_t padded_keys = round_up(key_dim, lanes);
  ScratchLayout layout;
  Scratch scratch;
  scratch.coefficients = layout.reserve(kDecodeCoefficients * padded_keys);
  for (std::int64_t* row : {&scratch.q_row, &scratch.k_row, &scratch.gk_row}) {
    *row = layout.reserve(padded_keys);
  }
  for (std::int64_t* row : {&scratch.v_row, &scratch.o_row, &scratch.gv_row}) {
    *row = layout.reserve(tile_v);
  }
  scratch.state = layout.reserve(key_dim * std::min(tile_v, kDecodeBlockVectors * lanes));
  scratch.size = layout.size();
  return scratch;
}

Params sizes_of(const Problem& problem, const Config& config) {
  Params params;
  params.rows = problem.B;
  params.heads = problem.H;
  params.kv_heads = problem.Hkv;
  params.key_dim = problem.K;
  params.value_dim = problem.V;
  params.tile_v = round_up(std::min<std::int64_t>(config.tile_v, problem.V), lanes(config.isa));
  params.tiles = round_up(problem.V, params.tile_v) / params.tile_v;
  params.prefetch_columns = config.prefetch;
  params.scratch = scratch_layout(problem.K, params.tile_v, lanes(config.isa));
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
  std::size_t slots = 0;  // int64 [B], when they are given
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
  layout.slots = layout.reserve(problem.slots ? rows * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  layout.gamma =
      layout.reserve(constant_decay ? static_cast<std::size_t>(problem.H) * sizeof(float) : 0);
  return layout;
}

/// On every launch: a plan's slot indices change between launches.
const std::int64_t* checked_slots(const Problem& problem, const ConstTensorView& indices,
                                  std::byte* memory) {
  auto* const slots = reinterpret_cast<std::int64_t*>(memory);  // aligned by reserve_aligned()
  for (std::int64_t row = 0; row < problem.B; ++row) {
    slots[row] = integer_at(indices, row);
    if (slots[row] >= problem.S) {
      throw InvalidArgument(str("recurrent_decode: slot_indices[", row, "] is ", slots[row],
                                ", expected less than ", problem.S));
    }
  }
  return slots;
}

Params params_of(const Problem& problem, const ops::RecurrentDecodeArgs& args, const Config& config,
                 const DecodeWorkspace& layout, std::byte* memory) {
  Params params = sizes_of(problem, config);
  params.q = one_token_tensor(args.q);
  params.k = one_token_tensor(args.k);
  params.v = one_token_tensor(args.v);
  params.o = one_token_tensor(args.o);
  params.g = one_token_tensor(args.g);
  params.gk = one_token_tensor(args.gk);
  params.gv = one_token_tensor(args.gv);
  params.g_gamma = gamma_values(args.gamma, 1, problem.H, memory + layout.gamma).values;
  params.state = state_tensor<float>(args.state);
  if (args.slot_indices) {
    params.slots = checked_slots(problem, *args.slot_indices, memory + layout.slots);
  }
  params.scale = static_cast<float>(args.scale);
  return params;
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
    return {"g", "gamma", "gk", "gv", "slots"};
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
    run_task_shares(tasks, layout.threads,
                    [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                      const FlushDenormals flush_denormals;
                      compiled.run(params, first, last, memory + thread * params.scratch.size);
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
