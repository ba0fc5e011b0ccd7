// Rows of the op's tensors as walks take them.
#pragma once

#include <cstdint>
#include <optional>

#include <attune/core/dtype.hpp>

#include "cuda/fused_recurrent/walk.hpp"

namespace attune::cuda {

/// Whether four elements at any multiple of four channels can be moved at once.
template <class Tensor>
bool moves_in_quads(const Tensor& tensor) {
  constexpr std::int64_t kQuad = 4;
  const auto bytes = static_cast<std::uintptr_t>(kQuad) * size_of(tensor.dtype);
  for (int dim = 0; dim < tensor.rank() - 1; ++dim) {
    if (tensor.stride(dim) % kQuad != 0) return false;
  }
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

/// Rows of q or do: `group` is 1; of k or v: the query heads that share one of theirs.
inline WalkRows walk_rows(const ConstTensorView& tensor, std::int64_t group) {
  return {.view = token_view(tensor), .group = group, .vectors = moves_in_quads(tensor)};
}

inline WalkGate walk_gate(const std::optional<ConstTensorView>& gate) {
  return {.view = gate_view(gate), .vectors = gate && moves_in_quads(*gate)};
}

}  // namespace attune::cuda
