#include "rows_layout.hpp"

#include <initializer_list>

namespace attune::ops {
namespace {

/// Whether the view is a dense array when its dimensions are taken in this order, innermost first.
/// Dimensions count from the last, -1; those that it has not are passed over.
bool is_dense(const ViewRef& view, std::initializer_list<int> innermost_first) {
  std::int64_t step = 1;
  for (const int from_end : innermost_first) {
    const int dim = view.rank() + from_end;
    if (dim < 0 || view.size(dim) == 1) continue;
    if (view.stride(dim) != step) return false;
    step *= view.size(dim);
  }
  return true;
}

}  // namespace

void RowsLayout::add_tokens(const ViewRef& view) {
  if (view.empty()) return;
  bthd_ = bthd_ && is_dense(view, {-1, -2, -3, -4});
  bhtd_ = bhtd_ && is_dense(view, {-1, -3, -2, -4});
  add_alignment(view);
}

void RowsLayout::add_dense(const ViewRef& view) {
  if (view.empty()) return;
  bthd_ = bthd_ && is_dense(view, {-1, -2, -3, -4});
  bhtd_ = false;
  add_alignment(view);
}

void RowsLayout::add_expected(bool several_rows, std::int64_t row_bytes) {
  aligned_ = aligned_ && (!several_rows || row_bytes % kRowAlignment == 0);
}

void RowsLayout::add_alignment(const ViewRef& view) {
  const auto width = static_cast<std::int64_t>(size_of(view.dtype()));
  // A pool of states stored [V, K] has its rows along the last dimension but one.
  const int last = view.rank() - 1;
  const bool swapped = view.size(last) != 1 && view.stride(last) != 1 && view.stride(last - 1) == 1;
  const int within_row = swapped ? last - 1 : last;
  aligned_ = aligned_ && reinterpret_cast<std::uintptr_t>(view.data()) % kRowAlignment == 0;
  for (int dim = 0; dim <= last; ++dim) {
    if (dim == within_row || view.size(dim) == 1) continue;
    aligned_ = aligned_ && view.stride(dim) * width % kRowAlignment == 0;
  }
}

RowsLayout layout_of(const OperandTable& table, const OperandCheck& check,
                     void (RowsLayout::*add)(const ViewRef&), bool outputs, bool several_rows) {
  RowsLayout layout;
  for (std::size_t i = 0; i < table.operands.size(); ++i) {
    const OperandInfo& operand = table.operands[i];
    if (!operand.is_in_layout) continue;
    if (operand.is_output() && !outputs) {
      const auto last = static_cast<std::size_t>(operand.rank() - 1);
      layout.add_expected(several_rows, check.size(operand.sizes[last]) *
                                            static_cast<std::int64_t>(size_of(check.io())));
    } else if (check.view(i).given()) {
      (layout.*add)(check.view(i));
    }
  }
  return layout;
}

}  // namespace attune::ops
