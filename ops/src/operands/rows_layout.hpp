// How the rows of a call's tensors lie in memory: what a problem says of them in `layout` and
// `aligned`.
#pragma once

#include <cstdint>

#include <attune/core/operand_check.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

inline constexpr std::int64_t kRowAlignment = 16;  // bytes

/// Takes in tensors one by one.
class RowsLayout {
 public:
  /// A view [B, T, H, D], or [T, H, D] of one batch.
  void add_tokens(const ViewRef& view);
  /// Rows [B, H, D] or a pool of states [S, H, K, V].
  void add_dense(const ViewRef& view);
  /// A tensor that is not there yet and will be dense, in the order of those that are.
  void add_expected(bool several_rows, std::int64_t row_bytes);

  Layout layout() const { return bthd_ ? Layout::kBthd : bhtd_ ? Layout::kBhtd : Layout::kStrided; }
  bool aligned() const { return aligned_; }

 private:
  void add_alignment(const ViewRef& view);

  bool bthd_ = true;
  bool bhtd_ = true;
  bool aligned_ = true;
};

/// The layout of a call's operands that count for it. `add` is add_tokens or add_dense; outputs
/// that are not there yet count as dense, where `several_rows` says whether they have more than
/// one.
RowsLayout layout_of(const OperandTable& table, const OperandCheck& check,
                     void (RowsLayout::*add)(const ViewRef&), bool outputs, bool several_rows);

}  // namespace attune::ops
