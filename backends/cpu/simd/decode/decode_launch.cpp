#include "decode_launch.hpp"

#include <algorithm>

#include <attune/core/error.hpp>

#include "cpu/simd/arguments.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "cpu/simd/task_queue.hpp"
#include "decode_params.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentDecodeProblem;
using Args = ops::RecurrentDecodeArgs;

DecodeScratch scratch_layout(std::int64_t key_dim, std::int64_t tile_v, std::int64_t lanes) {
  const std::int64_t padded_keys = round_up(key_dim, lanes);
  ScratchLayout layout;
  DecodeScratch scratch;
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

DecodeParams sizes_of(const Problem& problem, const DecodeConfig& config) {
  DecodeParams params;
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

std::size_t scratch_bytes(const DecodeParams& sizes) {
  return static_cast<std::size_t>(sizes.scratch.size) * sizeof(float);
}

/// What lies where in the workspace, in bytes.
struct Workspace {
  std::int64_t threads = 0;
  // From the start on, each thread's scratch memory.
  std::size_t slots = 0;  // int64 [B], when they are given
  std::size_t gamma = 0;  // float [H], when there is a constant decay
  std::size_t size = 0;

  std::size_t reserve(std::size_t bytes) { return reserve_aligned(size, bytes); }
};

Workspace workspace_of(const Problem& problem, const DecodeConfig& config) {
  Workspace layout;
  layout.threads = std::min<std::int64_t>(config.threads, decode_task_count(problem, config));
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

DecodeParams params_of(const Problem& problem, const Args& args, const DecodeConfig& config,
                       const Workspace& layout, std::byte* memory) {
  DecodeParams params = sizes_of(problem, config);
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

auto* decode_for([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &decode_avx512;
  if (isa == Isa::kAvx2) return &decode_avx2;
#endif
  return &decode_baseline;
}

}  // namespace

std::int64_t decode_task_count(const Problem& problem, const DecodeConfig& config) {
  return problem.B * problem.H * sizes_of(problem, config).tiles;
}

std::size_t decode_workspace_bytes(const Problem& problem, const DecodeConfig& config) {
  return workspace_of(problem, config).size;
}

void launch_decode(const Problem& problem, const Args& args, const DecodeConfig& config,
                   std::span<std::byte> workspace) {
  const std::int64_t tasks = decode_task_count(problem, config);
  if (tasks == 0) return;
  const Workspace layout = workspace_of(problem, config);
  const DecodeParams params = params_of(problem, args, config, layout, workspace.data());
  auto* const memory = reinterpret_cast<float*>(workspace.data());  // aligned by contract
  auto* const decode = decode_for(config.isa);
  run_task_shares(tasks, layout.threads,
                  [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                    const FlushDenormals flush_denormals;
                    decode(params, first, last, memory + thread * params.scratch.size);
                  });
}

}  // namespace attune::cpu::simd
