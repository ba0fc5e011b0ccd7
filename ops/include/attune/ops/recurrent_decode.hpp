// One token of gated recurrent attention for each row of a batch, on a pool of states.
//
//   S[slot][h] = exp(g + g_gamma + gk[i] + gv[j]) * S[slot][h] + k[i] v[j]
//   o[j]       = scale * sum_i q[i] S[slot][h][i,j]
//
//   tensor        shape                   type            notes
//   q             [B,H,K]                 f32, f16, bf16  any strides, last dimension contiguous
//   k, v          [B,Hkv,K], [B,Hkv,V]    q's             H a multiple of Hkv
//   g, gk, gv     [B,H], [B,H,K], [B,H,V] f32 or q's      log decays, as in recurrent_attention.hpp
//   g_gamma       [H]                     f32
//   state         [S,H,K,V]               f32             the pool, any strides; updated in place
//   slot_indices  [B]                     i32, i64        row b uses slot slot_indices[b]; without
//                                                         it, slot b
//   o             [B,H,V]                 q's
//
// A negative slot index is padding: the row's output is zero and no state is touched. An index >= S
// is an error in host memory and counts as padding on a device; the same slot twice is an error in
// host memory and undefined on a device. The gradient is not defined for a step that updates its
// state in place.
//
// Precision as of o in recurrent_attention.hpp. A NaN or an infinity in a row of q, k, v or a gate
// stays in o and the slot of that row, and there in its head; one of k and v in the heads that read
// it.
//
// Sources and errors as in recurrent_attention.hpp.
#pragma once

#include <optional>

#include <attune/core/optional_view.hpp>
#include <attune/core/plan.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::ops {

struct RecurrentDecodeOptions {
  OptionalConstTensorView g = {};
  OptionalConstTensorView g_gamma = {};
  OptionalConstTensorView gk = {};
  OptionalConstTensorView gv = {};
  OptionalConstTensorView slot_indices = {};
  std::optional<double> scale = {};  // K^-1/2
  CallOptions call = {};
};

/// Updates `state` in place and returns o, a new tensor on q's device.
Tensor recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const RecurrentDecodeOptions& options = {});

/// The same into the caller's o, on the stream of options.call.
void recurrent_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const RecurrentDecodeOptions& options = {});

/// A choice for tensors like these, and the arguments to launch it with (see
/// plan_recurrent_attention).
Plan<RecurrentDecode> plan_recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const RecurrentDecodeOptions& options = {});
RecurrentDecodeArgs recurrent_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const RecurrentDecodeOptions& options = {});

}  // namespace attune::ops
