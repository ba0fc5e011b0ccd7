// Index tensors whose values can be read: those in host memory.
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/core/call_check.hpp>
#include <attune/core/tensor.hpp>

namespace attune::ops {

/// Element i, row by row, of an i32 or i64 tensor of rank 1 or 2 in host memory.
std::int64_t index_at(const ConstTensorView& view, std::int64_t i);

/// What bounds of packed sequences bound.
struct TokenBounds {
  std::int64_t tokens = 0;
  bool may_be_padded = false;  // there may be tokens behind the last sequence
};

/// Throws InvalidArgument unless the values start at 0, do not fall, and end at the number of
/// tokens, or before it where these may be padded.
void check_cu_seqlens(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                      const TokenBounds& of);

/// Throws InvalidArgument when two tensors of one shape differ in a value.
void check_same_indices(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                        std::string_view other_name, const ConstTensorView& other);

/// Throws InvalidArgument when an index is not less than `slots` or one that is not negative stands
/// twice.
void check_slot_indices(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                        std::int64_t slots);

/// Throws InvalidArgument for a count of a row that is neither in least .. most nor negative.
void check_counts(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                  std::int64_t least, std::int64_t most);

}  // namespace attune::ops
