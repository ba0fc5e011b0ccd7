// Rows of host tensors as doubles. Any floating-point type, any strides.
//
// The row behind an index of the leading dimensions runs along the next one; behind a full index
// lies one element. Loads are exact. A store rounds once, to nearest, ties to even.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include <attune/core/tensor.hpp>

namespace attune::cpu::reference {

using Index = std::initializer_list<std::int64_t>;

void load_row(const ConstTensorView& from, Index index, std::span<double> row);
void store_row(const TensorView& to, Index index, std::span<const double> row);

/// Element `index` of an i32 or i64 vector.
std::int64_t load_integer(const ConstTensorView& from, std::int64_t index);

/// Matrix [n, h] of a [N, H, K, V] tensor, dense; zeros when there is no tensor.
std::vector<double> load_state(const std::optional<ConstTensorView>& from, std::int64_t n,
                               std::int64_t h, std::int64_t key_dim, std::int64_t value_dim);
void store_state(const TensorView& to, std::int64_t n, std::int64_t h,
                 std::span<const double> state);

}  // namespace attune::cpu::reference
