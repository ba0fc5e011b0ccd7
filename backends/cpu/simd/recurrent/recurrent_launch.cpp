#include "recurrent_launch.hpp"

#include <algorithm>
#include <atomic>
#include <optional>

#include <attune/core/parallel_for.hpp>

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

constexpr std::size_t kAlignment = 64;  // of a workspace, and of each thread's scratch memory in it

RecurrentForwardParams sizes_of(const Problem& problem) {
  RecurrentForwardParams params;
  params.batch = problem.B;
  params.tokens = problem.T;
  params.heads = problem.H;
  params.kv_heads = problem.Hkv;
  params.key_dim = problem.K;
  params.value_dim = problem.V;
  params.sequences = problem.sequences();
  params.reverse = problem.reverse;
  return params;
}

/// What lies where in the workspace, in bytes.
struct Workspace {
  std::int64_t threads = 0;
  std::size_t scratch_bytes = 0;  // each thread's, from the start on
  std::size_t bounds = 0;         // int64 [N + 1], when packed
  std::size_t gamma = 0;          // float [N, H], when there is a constant decay
  std::size_t size = 0;
};

Workspace workspace_of(const Problem& problem, const RecurrentForwardConfig& config) {
  const RecurrentForwardParams sizes = sizes_of(problem);
  Workspace layout;
  const auto reserve = [&layout](std::size_t bytes) {
    const std::size_t offset = layout.size;
    layout.size += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  };
  const std::int64_t tasks = recurrent_forward_task_count(config, sizes);
  layout.threads = std::min<std::int64_t>(config.threads, tasks);
  layout.scratch_bytes = recurrent_forward_scratch_bytes(config, sizes);
  reserve(static_cast<std::size_t>(layout.threads) * layout.scratch_bytes);
  const auto sequences = static_cast<std::size_t>(sizes.sequences);
  layout.bounds = reserve(problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  layout.gamma =
      reserve(constant_decay ? sequences * static_cast<std::size_t>(problem.H) * sizeof(float) : 0);
  return layout;
}

StorageType storage_type(DType dtype) {
  if (dtype == DType::kF32) return StorageType::kF32;
  return dtype == DType::kF16 ? StorageType::kF16 : StorageType::kBF16;
}

template <class Pointer>
TokenTensor<Pointer> token_tensor(const BasicTensorView<Pointer>& view) {
  return {view.data, storage_type(view.dtype), view.stride(0), view.stride(1), view.stride(2)};
}

TokenTensor<const void*> token_tensor(const std::optional<ConstTensorView>& view) {
  return view ? token_tensor(*view) : TokenTensor<const void*>{};
}

template <class Float, class View>
StateTensor<Float*> state_tensor(const std::optional<View>& view) {
  if (!view) return {};
  return {static_cast<Float*>(view->data), view->stride(0), view->stride(1), view->stride(2),
          view->stride(3)};
}

/// Where each packed sequence begins and ends, whatever the caller's array says: within the tokens
/// there are, and not before the one in front of it ends.
const std::int64_t* clamped_bounds(const ConstTensorView& cu_seqlens, std::int64_t tokens,
                                   std::byte* memory) {
  auto* const bounds = reinterpret_cast<std::int64_t*>(memory);  // aligned by workspace_of()
  std::int64_t least = 0;
  for (std::int64_t n = 0; n < cu_seqlens.size(0); ++n) {
    const std::int64_t offset = n * cu_seqlens.stride(0);
    const std::int64_t bound = cu_seqlens.dtype == DType::kI64
                                   ? static_cast<const std::int64_t*>(cu_seqlens.data)[offset]
                                   : static_cast<const std::int32_t*>(cu_seqlens.data)[offset];
    least = bounds[n] = std::clamp(bound, least, tokens);
  }
  return bounds;
}

/// The log decay of each sequence and head. One row serves all sequences where they share it.
void set_gamma(RecurrentForwardParams& params, const ops::ConstantDecay& gamma, std::byte* memory) {
  using Source = ops::ConstantDecay::Source;
  if (gamma.source == Source::kNone || params.sequences == 0) return;
  const bool shared = gamma.source == Source::kLayer || gamma.values.stride(0) == 0;
  auto* const values = reinterpret_cast<float*>(memory);  // aligned by workspace_of()
  for (std::int64_t n = 0; n < (shared ? 1 : params.sequences); ++n) {
    for (std::int64_t h = 0; h < params.heads; ++h) {
      values[n * params.heads + h] = static_cast<float>(ops::gamma_of(gamma, n, h, params.heads));
    }
  }
  params.g_gamma = values;
  params.g_gamma_sequence_stride = shared ? 0 : params.heads;
}

RecurrentForwardParams params_of(const Problem& problem, const Args& args, const Workspace& layout,
                                 std::byte* memory) {
  RecurrentForwardParams params = sizes_of(problem);
  params.q = token_tensor(args.q);
  params.k = token_tensor(args.k);
  params.v = token_tensor(args.v);
  params.o = token_tensor(args.o);
  params.g = token_tensor(args.g);
  params.gk = token_tensor(args.gk);
  params.gv = token_tensor(args.gv);
  params.initial_state = state_tensor<const float>(args.initial_state);
  params.final_state = state_tensor<float>(args.final_state);
  params.scale = static_cast<float>(args.scale);
  if (args.cu_seqlens) {
    params.cu_seqlens = clamped_bounds(*args.cu_seqlens, problem.T, memory + layout.bounds);
  }
  set_gamma(params, args.gamma, memory + layout.gamma);
  return params;
}

}  // namespace

std::int64_t task_count(const Problem& problem, const RecurrentForwardConfig& config) {
  return recurrent_forward_task_count(config, sizes_of(problem));
}

std::size_t launch_workspace_bytes(const Problem& problem, const RecurrentForwardConfig& config) {
  return workspace_of(problem, config).size;
}

void launch(const Problem& problem, const Args& args, const RecurrentForwardConfig& config,
            std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  const std::int64_t tasks = task_count(problem, config);
  if (tasks == 0) return;
  const RecurrentForwardParams params = params_of(problem, args, layout, workspace.data());

  // Packed sequences differ in length, so threads take tasks as they go; a few at a time where
  // there are many, since short ones end sooner than a counter travels between cores.
  const std::int64_t grain = std::max<std::int64_t>(1, tasks / (layout.threads * 16));
  std::atomic<std::int64_t> next{0};
  parallel_for(layout.threads, static_cast<int>(layout.threads), [&](std::int64_t thread) {
    std::byte* const scratch =
        workspace.data() + static_cast<std::size_t>(thread) * layout.scratch_bytes;
    for (;;) {
      const std::int64_t first = next.fetch_add(grain, std::memory_order_relaxed);
      if (first >= tasks) return;
      recurrent_forward(config, params, first, std::min(first + grain, tasks), scratch);
    }
  });
}

}  // namespace attune::cpu::simd
