#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "cuda/decode/decode.hpp"

namespace attune::cuda::decode {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;
using Args = ops::RecurrentDecodeArgs;

/// [B, H, D] or, for g, [B, H]; with a dimension of tokens after the first where there is one.
template <class View, class Tensor>
View rows_view(const Tensor& rows, bool has_tokens) {
  return {.data = rows.data,
          .batch = rows.stride(0),
          .token = has_tokens ? rows.stride(1) : 0,
          .head = rows.stride(has_tokens ? 2 : 1)};
}
GateView gate_rows_view(const std::optional<ConstTensorView>& gate, bool has_tokens) {
  if (!gate) return {};
  return {.rows = rows_view<ConstTokenView>(*gate, has_tokens),
          .is_f32 = gate->dtype == DType::kF32};
}

DecodeParams params_of(const Problem& problem, const Args& args) {
  const bool has_tokens = problem.T > 0;
  return {.q = rows_view<ConstTokenView>(args.q, has_tokens),
          .fresh = {.k = rows_view<ConstTokenView>(args.k, has_tokens),
                    .v = rows_view<ConstTokenView>(args.v, has_tokens),
                    .g = gate_rows_view(args.g, has_tokens),
                    .gk = gate_rows_view(args.gk, has_tokens),
                    .gv = gate_rows_view(args.gv, has_tokens)},
          .gamma = decay_view(args.gamma, problem.H),
          .slots = indices_view(args.slot_indices),
          .state = pool_view(args.state),
          .o = rows_view<TokenView>(args.o, has_tokens),
          .rows = problem.B,
          .pool = problem.S,
          .heads = problem.H,
          .heads_per_kv = problem.H / problem.Hkv,
          .keys = problem.K,
          .values = problem.V,
          .scale = static_cast<float>(args.scale)};
}

/// Whether a row of so many elements is made of whole vectors of 16 bits.
bool is_of_vectors(std::int64_t elements) {
  return elements % Config::thread_columns(sizeof(std::uint16_t)) == 0;
}

}  // namespace

StepParams step_params_of(const Problem& problem, const Args& args) {
  StepParams params;
  static_cast<DecodeParams&>(params) = params_of(problem, args);
  if (problem.R > 0) {
    params.committed = {.k = rows_view<ConstTokenView>(*args.committed_k, true),
                        .v = rows_view<ConstTokenView>(*args.committed_v, true),
                        .g = gate_rows_view(args.committed_g, true),
                        .gk = gate_rows_view(args.committed_gk, true),
                        .gv = gate_rows_view(args.committed_gv, true)};
    params.accepted = indices_view(args.committed_accepted);
  }
  if (problem.kept) {
    params.kept = indices_view(args.kept_slots);
    params.kept_token = problem.T > 0 ? args.kept_slots->stride(1) : 0;
    params.accepted = indices_view(args.accepted);
  }
  params.rounding = args.rounding;
  params.tokens = static_cast<std::int32_t>(problem.tokens());
  params.committed_tokens = static_cast<std::int32_t>(problem.R);
  return params;
}

PoolView pool_view(const TensorView& states) {
  return {states.data, states.stride(0), states.stride(1), states.stride(2), states.stride(3)};
}

bool has_row_vectors(const TensorView& states) {
  const auto columns = static_cast<std::int64_t>(Config::thread_columns(size_of(states.dtype)));
  if (states.size(3) % columns != 0 || states.stride(3) != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(states.data) % Config::kVectorBytes != 0) return false;
  for (int dim = 0; dim < 3; ++dim) {
    if (states.size(dim) > 1 && states.stride(dim) % columns != 0) return false;
  }
  return true;
}

bool is_one_token(const Problem& problem) {
  return problem.T == 0 && problem.R == 0 && !problem.kept &&
         problem.rounding == StateRounding::Kind::kNearest;
}

bool takes_products(const Problem& problem) {
  // Offsets of tokens are numbers of 32 bits there.
  const double elements = static_cast<double>(problem.B) * static_cast<double>(problem.H) *
                          static_cast<double>(std::max(problem.K, problem.V)) *
                          Config::kProductTokens;
  return !is_one_token(problem) && problem.dtype != DType::kF32 &&
         (problem.gates & ops::kGateGv) == 0 && problem.rounding == StateRounding::Kind::kNearest &&
         problem.T <= Config::kProductTokens && problem.R <= Config::kProductTokens &&
         elements < std::numeric_limits<std::int32_t>::max() && problem.aligned &&
         problem.layout == ops::Layout::kBthd && is_of_vectors(problem.K) &&
         is_of_vectors(problem.V);
}

bool has_aligned_gates(const StepParams& params) {
  const auto is_aligned = [](const GateView& gate) {
    return reinterpret_cast<std::uintptr_t>(gate.rows.data) % Config::kVectorBytes == 0;
  };
  return is_aligned(params.fresh.gk) && is_aligned(params.committed.gk);
}

}  // namespace attune::cuda::decode
