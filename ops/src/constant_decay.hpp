// The decay that is constant in time: its spellings, and the one that kernels see.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <attune/ops/recurrent_attention_op.hpp>

#include "call_check.hpp"

namespace attune::ops {

/// As the caller gave it; null is "not given".
struct DecayInputs {
  const ConstTensorView* g_gamma = nullptr;
  const ConstTensorView* slopes = nullptr;
  std::optional<std::int64_t> layer_idx = {};
  std::optional<std::int64_t> num_layers = {};
  bool required = false;  // lightning's: exactly one source, not at most one
};

/// How its values are shaped.
enum class DecayShape {
  kHeads,          // [H]
  kSlopesOfHeads,  // slopes [H], g_gamma [H] or [N, H]
  kCanonical,      // [N, H]: the call was lowered before
};

/// The tensor given, or null; and what the caller calls it.
const ConstTensorView* decay_values(const DecayInputs& decay);
std::string_view decay_name(const DecayInputs& decay);

/// Throws InvalidArgument unless there is at most one source (exactly one when required), and it is
/// as it should be.
void check_decay(CallCheck& check, const DecayInputs& decay, DecayShape shape,
                 std::int64_t sequences, std::int64_t heads);

/// The canonical form of a checked decay.
ConstantDecay lowered_decay(const DecayInputs& decay, std::int64_t sequences);

/// A checked decay's inputs, from its canonical form. Borrows `decay`.
DecayInputs decay_inputs(const ConstantDecay& decay);

/// [H] as [sequences, H] that repeats it; [N, H] as it is.
template <class Pointer>
BasicTensorView<Pointer> over_sequences(const BasicTensorView<Pointer>& view,
                                        std::int64_t sequences) {
  if (view.rank() == 2) return view;
  BasicTensorView<Pointer> result = view;
  result.shape = {sequences, view.size(0)};
  result.strides = {0, view.stride(0)};
  return result;
}

}  // namespace attune::ops
