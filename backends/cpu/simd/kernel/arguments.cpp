#include "arguments.hpp"

#include <algorithm>
#include <cstring>

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;

/// What a forward and a backward pass read alike.
template <class Args>
ForwardParams inputs(const Problem& problem, const Args& args, const ArgumentSpace& space,
                     std::byte* workspace) {
  ForwardParams params = forward_sizes(problem);
  params.q = token_tensor(args.q);
  params.k = token_tensor(args.k);
  params.v = token_tensor(args.v);
  params.g = token_tensor(args.g);
  params.gk = token_tensor(args.gk);
  params.gv = token_tensor(args.gv);
  params.initial_state = stored_states(args.initial_state);
  params.scale = static_cast<float>(args.scale);
  if (args.cu_seqlens) {
    params.cu_seqlens = clamped_bounds(*args.cu_seqlens, problem.T, workspace + space.bounds);
  }
  const Gamma gamma =
      gamma_values(args.gamma, params.sequences, params.heads, workspace + space.gamma);
  params.g_gamma = gamma.values;
  params.g_gamma_sequence_stride = gamma.sequence_stride;
  return params;
}

}  // namespace

StorageType storage_type(DType dtype) {
  if (dtype == DType::kF32) return StorageType::kF32;
  return dtype == DType::kF16 ? StorageType::kF16 : StorageType::kBF16;
}

std::int64_t integer_at(const ConstTensorView& view, std::int64_t index) {
  const std::int64_t offset = index * view.stride(0);
  return view.dtype == DType::kI64 ? static_cast<const std::int64_t*>(view.data)[offset]
                                   : static_cast<const std::int32_t*>(view.data)[offset];
}

const std::int64_t* clamped_bounds(const ConstTensorView& cu_seqlens, std::int64_t tokens,
                                   std::byte* memory) {
  auto* const bounds = reinterpret_cast<std::int64_t*>(memory);  // aligned by reserve_aligned()
  std::int64_t least = 0;
  for (std::int64_t n = 0; n < cu_seqlens.size(0); ++n) {
    least = bounds[n] = std::clamp(integer_at(cu_seqlens, n), least, tokens);
  }
  return bounds;
}

Gamma gamma_values(const ops::ConstantDecay& gamma, std::int64_t sequences, std::int64_t heads,
                   std::byte* memory) {
  using Source = ops::ConstantDecay::Source;
  if (gamma.source == Source::kNone || sequences == 0) return {};
  const bool shared = gamma.source == Source::kLayer || gamma.values.stride(0) == 0;
  auto* const values = reinterpret_cast<float*>(memory);  // aligned by reserve_aligned()
  for (std::int64_t n = 0; n < (shared ? 1 : sequences); ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      values[n * heads + h] = static_cast<float>(ops::gamma_of(gamma, n, h, heads));
    }
  }
  return {.values = values, .sequence_stride = shared ? 0 : heads};
}

ArgumentSpace reserve_arguments(const Problem& problem, bool backward, std::size_t& size) {
  ArgumentSpace space;
  const auto sequences = static_cast<std::size_t>(problem.sequences());
  space.bounds = reserve_aligned(size, problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  const std::size_t decays = constant_decay ? sequences * static_cast<std::size_t>(problem.H) : 0;
  space.gamma = reserve_aligned(size, decays * sizeof(float));
  if (backward) space.dgamma = reserve_aligned(size, decays * sizeof(double));
  return space;
}

ForwardParams forward_sizes(const ops::RecurrentAttentionProblem& problem) {
  ForwardParams params;
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

ForwardParams forward_params(const Problem& problem, const ops::RecurrentAttentionArgs& args,
                             const ArgumentSpace& space, std::byte* workspace) {
  ForwardParams params = inputs(problem, args, space, workspace);
  params.o = token_tensor(args.o);
  params.final_state = stored_states(args.final_state);
  if (args.states) {
    params.initial_state = stored_states(ConstTensorView(*args.states));
    params.final_state = stored_states(*args.states);
    params.initial_slots = slot_indices(args.first_slots());
    params.final_slots = slot_indices(args.final_slots);
    params.snapshot_every = args.snapshot_every;
    params.snapshots = args.snapshot_slots ? args.snapshot_slots->size(1) : 0;
    params.snapshot_slots = slot_indices(args.snapshot_slots);
  }
  params.rounds_at_random = args.state_rounding.kind == StateRounding::Kind::kStochastic;
  params.rounding_seed = args.state_rounding.seed;
  return params;
}

BackwardParams backward_params(const Problem& problem,
                               const ops::RecurrentAttentionBackwardArgs& args,
                               const ArgumentSpace& space, std::byte* workspace) {
  BackwardParams params;
  params.forward = inputs(problem, args, space, workspace);
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
  if (args.dgamma) params.dgamma = reinterpret_cast<double*>(workspace + space.dgamma);
  return params;
}

SlotIndices slot_indices(const std::optional<ConstTensorView>& view) {
  if (!view) return {};
  return {.data = view->data,
          .is_wide = view->dtype == DType::kI64,
          .sequence_stride = view->stride(0),
          .snapshot_stride = view->rank() == 2 ? view->stride(1) : 0};
}

namespace {

/// Of one batch, rows of `width` for each head and token from `first` on.
void fill_rows(const TokenTensor<void*>& rows, std::int64_t heads, std::int64_t width,
               std::int64_t first, std::int64_t tokens) {
  if (rows.data == nullptr) return;
  const std::int64_t size = size_of(rows.type);
  for (std::int64_t t = first; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t offset = t * rows.token_stride + h * rows.head_stride;
      std::memset(static_cast<char*>(rows.data) + offset * size, 0,
                  static_cast<std::size_t>(width * size));
    }
  }
}

std::int64_t end_of_sequences(const ForwardParams& params) {
  return params.cu_seqlens != nullptr ? params.cu_seqlens[params.sequences] : params.tokens;
}

}  // namespace

void fill_padded_rows(const ForwardParams& params) {
  fill_rows(params.o, params.heads, params.value_dim, end_of_sequences(params), params.tokens);
}

void finish_backward(const Problem& problem, const ops::RecurrentAttentionBackwardArgs& args,
                     const BackwardParams& params) {
  const ForwardParams& forward = params.forward;
  const std::int64_t end = end_of_sequences(forward);
  const auto fill = [&](const TokenTensor<void*>& rows, std::int64_t heads, std::int64_t width) {
    fill_rows(rows, heads, width, end, forward.tokens);
  };
  fill(params.dq, forward.heads, forward.key_dim);
  fill(params.dk, forward.kv_heads, forward.key_dim);
  fill(params.dv, forward.kv_heads, forward.value_dim);
  fill(params.dg, forward.heads, 1);
  fill(params.dgk, forward.heads, forward.key_dim);
  fill(params.dgv, forward.heads, forward.value_dim);
  if (!args.dgamma) return;
  const TensorView& to = *args.dgamma;
  const std::int64_t sequences = problem.sequences();
  const double sign = args.gamma.source == ops::ConstantDecay::Source::kSlopes ? -1.0 : 1.0;
  const bool summed = to.stride(0) == 0;
  auto* const target = static_cast<float*>(to.data);
  for (std::int64_t h = 0; h < problem.H; ++h) {
    double sum = 0.0;
    for (std::int64_t n = 0; n < sequences; ++n) {
      const double value = sign * params.dgamma[n * problem.H + h];
      sum += value;
      if (!summed) target[n * to.stride(0) + h * to.stride(1)] = static_cast<float>(value);
    }
    if (summed) target[h * to.stride(1)] = static_cast<float>(sum);
  }
}

}  // namespace attune::cpu::simd
