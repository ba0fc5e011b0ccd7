#include "backward_launch.hpp"

#include <algorithm>
#include <bit>

#include "backward_params.hpp"
#include "cpu/simd/arguments.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/task_queue.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr std::int64_t kCacheLineFloats = kCacheLineBytes / sizeof(float);

/// Gate gradients are summed up over no more tokens than this, or than checkpoints are kept.
constexpr std::int64_t kSegmentTokens = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Tokens between two checkpoints: few, but no fewer than there are checkpoints then. A power of
/// two, so that passes of any number of tokens fill a segment.
std::int64_t segment_tokens(std::int64_t tokens) {
  std::int64_t segment = kSegmentTokens;
  while (segment * segment < tokens) segment *= 2;
  return segment;
}

class ScratchLayout {
 public:
  std::int64_t reserve(std::int64_t floats) {
    const std::int64_t offset = size_;
    size_ += round_up(floats, kCacheLineFloats);
    return offset;
  }
  std::int64_t size() const { return size_; }

 private:
  std::int64_t size_ = 0;
};

BackwardScratch::Side side_layout(ScratchLayout& layout, const Problem& problem, int tokens,
                                  std::int64_t width, bool has_gates) {
  BackwardScratch::Side side;
  side.coefficients = layout.reserve((2 * tokens + 1) * width);
  for (std::int64_t* rows : {&side.reads, &side.writes, &side.decays, &side.sums}) {
    *rows = layout.reserve(tokens * width);
  }
  for (std::int64_t* row : {&side.totals, &side.carries, &side.gate}) *row = layout.reserve(width);
  side.terms = layout.reserve(has_gates ? problem.T * width : 0);
  side.group_sum = layout.reserve(problem.H > problem.Hkv ? problem.T * width : 0);
  return side;
}

BackwardScratch scratch_layout(const Problem& problem, const RecurrentBackwardConfig& config) {
  const std::int64_t key_width = round_up(problem.K, lanes(config.isa));
  const std::int64_t value_width = round_up(problem.V, lanes(config.isa));
  const std::int64_t state = problem.V * key_width;
  const bool key_gates = (problem.gates & ~ops::kGateGv) != 0;
  const bool value_gates = (problem.gates & ops::kGateGv) != 0;
  const std::int64_t segments = problem.gates != 0 ? problem.T / segment_tokens(problem.T) + 1 : 1;
  ScratchLayout layout;
  BackwardScratch scratch;
  scratch.keys = side_layout(layout, problem, config.tokens_per_pass, key_width, key_gates);
  scratch.values = side_layout(layout, problem, config.tokens_per_pass, value_width, value_gates);
  scratch.state = layout.reserve(state);
  scratch.dstate = layout.reserve(state);
  scratch.checkpoints = layout.reserve((segments - 1) * state);
  scratch.zeros = layout.reserve(value_width);
  scratch.size = layout.size();
  return scratch;
}

/// What lies where in the workspace, in bytes.
struct Workspace {
  // From the start on, each thread's scratch memory.
  std::int64_t threads = 0;
  BackwardScratch scratch;
  std::size_t bounds = 0;  // int64 [N + 1], when packed
  std::size_t gamma = 0;   // float [N, H], when there is a constant decay
  std::size_t dgamma = 0;  // double [N, H], as well
  std::size_t size = 0;

  std::size_t reserve(std::size_t bytes) { return reserve_aligned(size, bytes); }
};

Workspace workspace_of(const Problem& problem, const RecurrentBackwardConfig& config) {
  Workspace layout;
  layout.threads = std::min<std::int64_t>(config.threads, backward_task_count(problem));
  layout.scratch = scratch_layout(problem, config);
  layout.reserve(static_cast<std::size_t>(layout.threads * layout.scratch.size) * sizeof(float));
  const auto sequences = static_cast<std::size_t>(problem.sequences());
  layout.bounds = layout.reserve(problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  const std::size_t decays = constant_decay ? sequences * static_cast<std::size_t>(problem.H) : 0;
  layout.gamma = layout.reserve(decays * sizeof(float));
  layout.dgamma = layout.reserve(decays * sizeof(double));
  return layout;
}

RecurrentForwardParams forward_params(const Problem& problem, const Args& args,
                                      const Workspace& layout, std::byte* memory) {
  RecurrentForwardParams params;
  params.batch = problem.B;
  params.tokens = problem.T;
  params.heads = problem.H;
  params.kv_heads = problem.Hkv;
  params.key_dim = problem.K;
  params.value_dim = problem.V;
  params.sequences = problem.sequences();
  params.reverse = problem.reverse;
  params.scale = static_cast<float>(args.scale);
  params.q = token_tensor(args.q);
  params.k = token_tensor(args.k);
  params.v = token_tensor(args.v);
  params.g = token_tensor(args.g);
  params.gk = token_tensor(args.gk);
  params.gv = token_tensor(args.gv);
  params.initial_state = state_tensor<const float>(args.initial_state);
  if (args.cu_seqlens) {
    params.cu_seqlens = clamped_bounds(*args.cu_seqlens, problem.T, memory + layout.bounds);
  }
  const Gamma gamma =
      gamma_values(args.gamma, params.sequences, params.heads, memory + layout.gamma);
  params.g_gamma = gamma.values;
  params.g_gamma_sequence_stride = gamma.sequence_stride;
  return params;
}

RecurrentBackwardParams params_of(const Problem& problem, const Args& args,
                                  const RecurrentBackwardConfig& config, const Workspace& layout,
                                  std::byte* memory) {
  RecurrentBackwardParams params;
  params.forward = forward_params(problem, args, layout, memory);
  params.d_o = token_tensor(args.d_o);
  params.dq = token_tensor(args.dq);
  params.dk = token_tensor(args.dk);
  params.dv = token_tensor(args.dv);
  params.dg = token_tensor(args.dg);
  params.dgk = token_tensor(args.dgk);
  params.dgv = token_tensor(args.dgv);
  params.dfinal_state = state_tensor<const float>(args.dfinal_state);
  params.dinitial_state = state_tensor<float>(args.dinitial_state);
  // Aligned by reserve_aligned().
  if (args.dgamma) params.dgamma = reinterpret_cast<double*>(memory + layout.dgamma);
  params.tokens_per_pass = config.tokens_per_pass;
  params.segment_tokens = segment_tokens(problem.T);
  params.scratch = layout.scratch;
  return params;
}

auto* backward_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &recurrent_backward_avx512;
  if (isa == Isa::kAvx2) return &recurrent_backward_avx2;
#endif
  return &recurrent_backward_baseline;
}

/// Writes the gradient of gamma.values from that of each head's log decay, `of_gamma` [N, H].
void store_dgamma(const TensorView& to, ops::ConstantDecay::Source source, const Problem& problem,
                  const double* of_gamma) {
  const std::int64_t sequences = problem.sequences();
  const double sign = source == ops::ConstantDecay::Source::kSlopes ? -1.0 : 1.0;
  const bool summed = to.stride(0) == 0;
  auto* const target = static_cast<float*>(to.data);
  for (std::int64_t h = 0; h < problem.H; ++h) {
    double sum = 0.0;
    for (std::int64_t n = 0; n < sequences; ++n) {
      const double value = sign * of_gamma[n * problem.H + h];
      sum += value;
      if (!summed) target[n * to.stride(0) + h * to.stride(1)] = static_cast<float>(value);
    }
    if (summed) target[h * to.stride(1)] = static_cast<float>(sum);
  }
}

}  // namespace

std::int64_t backward_task_count(const Problem& problem) {
  return problem.sequences() * problem.Hkv;
}

std::size_t backward_workspace_bytes(const Problem& problem,
                                     const RecurrentBackwardConfig& config) {
  return workspace_of(problem, config).size;
}

void launch_backward(const Problem& problem, const Args& args,
                     const RecurrentBackwardConfig& config, std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  const RecurrentBackwardParams params = params_of(problem, args, config, layout, workspace.data());
  auto* const memory = reinterpret_cast<float*>(workspace.data());  // aligned by contract
  auto* const backward = backward_for(config.isa);
  if (layout.threads > 0) {
    run_task_queue(backward_task_count(problem), layout.threads,
                   [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                     const FlushDenormals flush_denormals;
                     backward(params, first, last, memory + thread * params.scratch.size);
                   });
  }
  if (args.dgamma) store_dgamma(*args.dgamma, args.gamma.source, problem, params.dgamma);
}

}  // namespace attune::cpu::simd
