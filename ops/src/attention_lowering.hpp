// What lowering a forward and a backward call have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "attention_call.hpp"
#include "input_rules.hpp"
#include "rows_layout.hpp"

namespace attune::ops {

/// A tensor with its batch dimension put back where it was left out.
template <class Pointer>
BasicTensorView<Pointer> with_batch(const BasicTensorView<Pointer>& view, int full_rank) {
  if (view.rank() == full_rank) return view;
  std::array<std::int64_t, Extents::kMaxRank> shape{1};
  std::array<std::int64_t, Extents::kMaxRank> strides{0};
  std::copy(view.shape.begin(), view.shape.end(), shape.begin() + 1);
  std::copy(view.strides.begin(), view.strides.end(), strides.begin() + 1);
  const auto rank = static_cast<std::size_t>(full_rank);
  BasicTensorView<Pointer> result = view;
  result.shape = Extents(std::span<const std::int64_t>(shape.data(), rank));
  result.strides = Extents(std::span<const std::int64_t>(strides.data(), rank));
  return result;
}

template <class Pointer>
std::optional<BasicTensorView<Pointer>> optional_with_batch(const BasicTensorView<Pointer>* view,
                                                            int full_rank) {
  if (view == nullptr) return std::nullopt;
  return with_batch(*view, full_rank);
}

template <class View>
std::optional<View> optional_view(const View* view) {
  if (view == nullptr) return std::nullopt;
  return *view;
}

/// The gates as kernels see them: a g of each key channel is gk.
struct CanonicalGates {
  const ConstTensorView* g;
  const ConstTensorView* gk;
};
inline CanonicalGates canonical_gates(const AttentionInputs& in, const AttentionSizes& sizes) {
  if (sizes.g_per_channel) return {nullptr, in.g};
  return {in.g, in.gk};
}

/// The problem, but for what depends on outputs: ht, d_o, layout and aligned.
RecurrentAttentionProblem problem_of(const AttentionInputs& in, const AttentionSizes& sizes);

void set_layout(RecurrentAttentionProblem& problem, const RowsLayout& layout);

/// Of q, k and v.
RowsLayout input_layout(const AttentionInputs& in);

/// Outputs that are not there yet count as dense.
void expect_rows(RowsLayout& layout, const AttentionSizes& sizes, DType dtype,
                 std::int64_t channels);

/// An output of rows in q's type.
void check_token_output(CallCheck& check, std::string_view name, const TensorView& view, Dims shape,
                        DType dtype, const AttentionSizes& sizes);

/// The members that forward and backward arguments share.
template <class Args>
void set_inputs(Args& args, const AttentionInputs& in, const AttentionSizes& sizes) {
  const CanonicalGates gates = canonical_gates(in, sizes);
  args.q = with_batch(*in.q, 4);
  args.k = with_batch(*in.k, 4);
  args.v = with_batch(*in.v, 4);
  args.g = optional_with_batch(gates.g, 3);
  args.gk = optional_with_batch(gates.gk, 4);
  args.gv = optional_with_batch(in.gv, 4);
  args.gamma = lowered_decay(in.decay, sizes.sequences);
  args.initial_state = optional_view(in.initial_state);
  args.cu_seqlens = optional_view(in.cu_seqlens);
  args.scale = scale_or_default(in.scale, sizes.K);
}

}  // namespace attune::ops
