// From an op's arguments to the raw pointers and strides of the kernels, and from a backward pass
// back to the gradients that are summed up at its end.
//
// What arguments are turned into, bounds of sequences and decays of heads, lies in the workspace of
// a launch: reserve_arguments() takes its part, and the rest writes there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <attune/core/tensor.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "params.hpp"
#include "scratch.hpp"

namespace attune::cpu::simd {

StorageType storage_type(DType dtype);

/// A [B, T, heads, width] or [B, T, heads] tensor; a null one when it is not given.
template <class Pointer>
TokenTensor<Pointer> token_tensor(const BasicTensorView<Pointer>& view) {
  return {view.data, storage_type(view.dtype), view.stride(0), view.stride(1), view.stride(2)};
}

template <class Pointer>
TokenTensor<Pointer> token_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? token_tensor(*view) : TokenTensor<Pointer>{};
}

/// A [B, heads, width] or [B, heads] tensor: one token a sequence.
template <class Pointer>
TokenTensor<Pointer> one_token_tensor(const BasicTensorView<Pointer>& view) {
  return {view.data, storage_type(view.dtype), view.stride(0), 0, view.stride(1)};
}

template <class Pointer>
TokenTensor<Pointer> one_token_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? one_token_tensor(*view) : TokenTensor<Pointer>{};
}

/// A [N, H, K, V] tensor of floats.
template <class Float, class Pointer>
StateTensor<Float*> state_tensor(const BasicTensorView<Pointer>& view) {
  return {static_cast<Float*>(view.data), view.stride(0), view.stride(1), view.stride(2),
          view.stride(3)};
}

template <class Float, class Pointer>
StateTensor<Float*> state_tensor(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? state_tensor<Float>(*view) : StateTensor<Float*>{};
}

/// A [N, H, K, V] tensor of any floating-point type, or a pool.
template <class Pointer>
StoredStates<Pointer> stored_states(const BasicTensorView<Pointer>& view) {
  return {view.data,      storage_type(view.dtype), view.stride(0),
          view.stride(1), view.stride(2),           view.stride(3)};
}

template <class Pointer>
StoredStates<Pointer> stored_states(const std::optional<BasicTensorView<Pointer>>& view) {
  return view ? stored_states(*view) : StoredStates<Pointer>{};
}

/// [N] or [N, M] integers; none when they are not given.
SlotIndices slot_indices(const std::optional<ConstTensorView>& view);

/// Element `index` of an i32 or i64 vector.
std::int64_t integer_at(const ConstTensorView& view, std::int64_t index);

/// Where each packed sequence begins and ends, whatever the caller's array says: within the tokens
/// there are, and not before the one in front of it ends. `memory` takes [N + 1] int64.
const std::int64_t* clamped_bounds(const ConstTensorView& cu_seqlens, std::int64_t tokens,
                                   std::byte* memory);

/// The log decay of sequence n and head h at n * sequence_stride + h. Null when there is none.
struct Gamma {
  const float* values = nullptr;
  std::int64_t sequence_stride = 0;  // 0 where all sequences share one row
};

/// `memory` takes [sequences, heads] floats.
Gamma gamma_values(const ops::ConstantDecay& gamma, std::int64_t sequences, std::int64_t heads,
                   std::byte* memory);

/// Where in a workspace lies what arguments are turned into; offsets in bytes.
struct ArgumentSpace {
  std::size_t bounds = 0;  // int64 [N + 1], when packed
  std::size_t gamma = 0;   // float [N, H], when there is a constant decay
  std::size_t dgamma = 0;  // double [N, H], as well, in a backward pass
};

/// Takes its part of a workspace that takes up `size` bytes so far.
ArgumentSpace reserve_arguments(const ops::RecurrentAttentionProblem& problem, bool backward,
                                std::size_t& size);

/// What a task needs to hold a state of 16 bits in fp32: a tile of its columns.
inline std::int64_t staged_floats(const ops::RecurrentAttentionProblem& problem,
                                  std::int64_t tile_v) {
  return problem.state_dtype == DType::kF32 ? 0 : problem.K * tile_v;
}

/// The sizes of a problem, without tensors.
ForwardParams forward_sizes(const ops::RecurrentAttentionProblem& problem);

ForwardParams forward_params(const ops::RecurrentAttentionProblem& problem,
                             const ops::RecurrentAttentionArgs& args, const ArgumentSpace& space,
                             std::byte* workspace);

BackwardParams backward_params(const ops::RecurrentAttentionProblem& problem,
                               const ops::RecurrentAttentionBackwardArgs& args,
                               const ArgumentSpace& space, std::byte* workspace);

/// Zeros in the rows of o behind the last sequence.
void fill_padded_rows(const ForwardParams& params);

/// What follows the tasks of a backward pass: writes args.dgamma, where it is given, from the
/// gradient of each head's log decay, and zeros in the rows of gradients behind the last sequence.
void finish_backward(const ops::RecurrentAttentionProblem& problem,
                     const ops::RecurrentAttentionBackwardArgs& args, const BackwardParams& params);

}  // namespace attune::cpu::simd
