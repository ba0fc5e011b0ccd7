#include <bit>
#include <string>

#include <attune/core/operand_check.hpp>

namespace attune {
namespace {

constexpr std::int64_t kUnset = -1;

}  // namespace

OperandCheck::OperandCheck(const OperandTable& table, std::string_view op, CheckLevel level,
                           ArgsForm form)
    : CallCheck(op, level), table_(table), form_(form) {
  set_by_.fill(-1);
  for (std::size_t i = 0; i < table.sizes.size(); ++i) values_.sizes[i] = table.sizes[i].constant;
}

/// The name of an operand that may be given under another one's.
std::string_view OperandCheck::renamed(int operand) const {
  for (std::size_t i = 0; i < renames_; ++i) {
    if (renamed_[i].operand == operand) operand = renamed_[i].to;
  }
  return own_name(table_.operands[static_cast<std::size_t>(operand)]);
}

void OperandCheck::inputs(const void* args) {
  check_each(table_.view_all(args, views_.data()) & ~table_.outputs);
}

void OperandCheck::outputs(const void* args) {
  table_.view_all(args, views_.data());
  check_each(table_.outputs);
}

void OperandCheck::check_each(std::uint32_t operands) {
  for (; operands != 0; operands &= operands - 1) check(std::countr_zero(operands));
}

void OperandCheck::check(int at) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const ViewRef& view = views_[static_cast<std::size_t>(at)];
  if (operand.optional && operand.gradient_of >= 0) {
    if (!is_paired(at)) return;
  } else {
    if (!view.given()) return;
    if (operand.not_with >= 0 && views_[static_cast<std::size_t>(operand.not_with)].given()) {
      refuse(name_of(at), "given together with ", name_of(operand.not_with),
             ", expected one of the two");
    }
    if (operand.with >= 0 && !views_[static_cast<std::size_t>(operand.with)].given()) {
      refuse(name_of(at), "given without ", name_of(operand.with));
    }
    const int first = first_dim(operand, view);
    decide_absent(operand, view, first);
    const Fit fit = fit_of(at, view, first);
    if (fit == Fit::kNo) refuse_shape(at, view, first);
    check_type(at, operand, view.dtype());
    if (fit == Fit::kBadSize) refuse_size(at, view, first);
  }
  values_.given |= 1U << static_cast<unsigned>(at);
  if (operand.is_contiguous) dense_rows(name_of(at), view);
  check_memory(name_of(at), operand, view);
}

/// Whether an output that is given exactly when its input is, of the input's shape, is given.
bool OperandCheck::is_paired(int at) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const ViewRef& view = views_[static_cast<std::size_t>(at)];
  const ViewRef& of = views_[static_cast<std::size_t>(operand.gradient_of)];
  if (!view.given() && !of.given()) return false;
  const std::string_view name = name_of(at), input_name = name_of(operand.gradient_of);
  if (!view.given()) refuse(name, "not given, expected with ", input_name);
  if (!of.given()) refuse(name, "given without ", input_name);
  if (view.shape() != of.shape()) {
    refuse(name, "shape ", view.shape(), ", expected ", of.shape(), " (", input_name, "'s)");
  }
  check_type(at, operand, view.dtype());
  return true;
}

/// The position of the dim that is the view's first.
int OperandCheck::first_dim(const OperandInfo& operand, const ViewRef& view) const {
  if (form_ == ArgsForm::kCanonical) return 0;
  if (operand.leading == Leading::kMissing) return 1;
  if (operand.leading == Leading::kMayBeMissing) return view.rank() == operand.rank() ? 0 : 1;
  return operand.sizes[0] == left_out_ && view.rank() < operand.rank() ? 1 : 0;
}

/// The first operand that may lack a dimension says whether all of them do.
void OperandCheck::decide_absent(const OperandInfo& operand, const ViewRef& view, int first) {
  if (view.rank() + 1 != rank_from(operand, first)) return;
  for (int dim = first; dim < operand.rank(); ++dim) {
    const int id = operand.sizes[static_cast<std::size_t>(dim)];
    const bool is_set = size(id) != kUnset;
    if (is_set || !table_.sizes[static_cast<std::size_t>(id)].rule.is_absent_at_0) continue;
    absent_ |= 1U << static_cast<unsigned>(id);
    set_size(id, 0);
  }
}

int OperandCheck::rank_from(const OperandInfo& operand, int first) const {
  if (absent_ == 0) return operand.rank() - first;
  int rank = 0;
  for (int dim = first; dim < operand.rank(); ++dim) {
    rank += is_absent(operand.sizes[static_cast<std::size_t>(dim)]) ? 0 : 1;
  }
  return rank;
}

/// Holds a shape against the sizes that are set, and sets those that it is the first to name.
OperandCheck::Fit OperandCheck::fit_of(int at, const ViewRef& view, int first) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  if (view.rank() != rank_from(operand, first)) return Fit::kNo;
  if (first == 1 && operand.sizes[0] == left_out_) {
    set_size(left_out_, 1);
    rows_leave_out_ = rows_leave_out_ || at == 0;
  }
  Fit fit = Fit::kYes;
  int extents = 0;
  for (int dim = first; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    const auto id = static_cast<std::size_t>(operand.sizes[i]);
    if (is_absent(operand.sizes[i])) continue;
    const std::int64_t extent = view.size(extents++);
    if (extent < 0) return Fit::kNo;
    const SizeInfo& info = table_.sizes[id];
    if (values_.sizes[id] != kUnset) {
      if (extent != values_.sizes[id] + operand.plus[i]) return Fit::kNo;
    } else if (info.otherwise >= 0) {
      values_.sizes[id] = size(info.otherwise);  // the call has not set it
      if (extent != values_.sizes[id] + operand.plus[i]) return Fit::kNo;
    } else {
      set_size(static_cast<int>(id), extent - operand.plus[i]);
      set_by_[id] = static_cast<std::int8_t>(at);
      if (!may_be(info, values_.sizes[id])) fit = Fit::kBadSize;
    }
  }
  return fit;
}

bool OperandCheck::may_be(const SizeInfo& info, std::int64_t is) const {
  if (info.divides < 0) return is >= (info.rule.is_absent_at_0 ? 1 : info.rule.least);
  return is >= 1 && size(info.divides) % is == 0;
}

void OperandCheck::refuse_shape(int at, const ViewRef& view, int first) const {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  std::array<Dim, Extents::kMaxRank> expected;
  std::size_t rank = 0;
  std::string when(may_leave_out(operand) ? left_out_when_ : std::string_view());
  for (int dim = first; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    if (is_absent(operand.sizes[i])) continue;
    const SizeInfo& info = table_.sizes[static_cast<std::size_t>(operand.sizes[i])];
    const std::int64_t size = size_or_other(operand.sizes[i]);
    if (info.rule.is_absent_at_0 && size == kUnset) when = str(" or without ", info.rule.name);
    Dim& is = expected[rank++];
    is.name = operand.dims.names[i];
    const bool named = set_by_[static_cast<std::size_t>(operand.sizes[i])] == at;
    if (size != kUnset && !named) is.size = size + operand.plus[i];
  }
  shape(name_of(at), view, std::span<const Dim>(expected).first(rank), when);
}

void OperandCheck::check_type(int at, const OperandInfo& operand, DType is) {
  switch (operand.types) {
    case Types::kIo:
      return check_shared_type(at, is, io_operand_, io_);
    case Types::kState:
      return check_shared_type(at, is, state_operand_, state_);
    case Types::kF32:
      if (is != DType::kF32) refuse(name_of(at), "dtype ", is, ", expected f32");
      return;
    case Types::kF32OrIo:
      (is == DType::kF32 ? gates_f32_ : gates_io_) = true;
      if (is == DType::kF32 || is == io_) return;
      if (io_ == DType::kF32) refuse(name_of(at), "dtype ", is, ", expected f32");
      refuse(name_of(at), "dtype ", is, ", expected f32 or ", io_, " (", name_of(io_operand_),
             "'s)");
    case Types::kIndex:
      if (is == DType::kI32 || is == DType::kI64) return;
      refuse(name_of(at), "dtype ", is, ", expected i32 or i64");
  }
}

/// Of operands that have one type in a call: the first one decides.
void OperandCheck::check_shared_type(int at, DType is, int& decided_by, DType& decided) {
  if (decided_by < 0) {
    if (!is_floating(is)) refuse(name_of(at), "dtype ", is, ", expected f32, f16 or bf16");
    decided_by = at;
    decided = is;
  } else if (is != decided) {
    refuse(name_of(at), "dtype ", is, ", expected ", decided, " (", name_of(decided_by), "'s)");
  }
}

/// Names the first size that may not be what this operand has set it to.
void OperandCheck::refuse_size(int at, const ViewRef& view, int first) const {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  for (int dim = first; dim < operand.rank(); ++dim) {
    const int id = operand.sizes[static_cast<std::size_t>(dim)];
    const SizeInfo& info = table_.sizes[static_cast<std::size_t>(id)];
    if (set_by_[static_cast<std::size_t>(id)] != at || may_be(info, size(id))) continue;
    if (info.divides >= 0) {
      refuse(name_of(at), size(id), " ", info.rule.plural, ", expected a divisor of ",
             name_of(set_by_[static_cast<std::size_t>(info.divides)]), "'s ", size(info.divides));
    }
    const std::string_view text = info.rule.least_text;
    if (!text.empty()) refuse(name_of(at), "shape ", view.shape(), ", expected ", text);
    refuse(name_of(at), "shape ", view.shape(), ", expected ", info.rule.name,
           " >= ", info.rule.is_absent_at_0 ? 1 : info.rule.least);
  }
}

void OperandCheck::check_memory(std::string_view name, const OperandInfo& operand,
                                const ViewRef& view) {
  if (operand.role == Role::kState) return output(name, view);
  if (!operand.is_output()) return input(name, view);
  const bool repeated = form_ == ArgsForm::kCanonical && operand.leading != Leading::kThere;
  if (repeated) return summed_output(name, view);
  output_or_in_place(name, view, operand.in_place_of);
}

/// A size, or the one that it is where no operand has set it.
std::int64_t OperandCheck::size_or_other(int at) const {
  const int other = table_.sizes[static_cast<std::size_t>(at)].otherwise;
  return size(at) == kUnset && other >= 0 ? size(other) : size(at);
}

DType OperandCheck::output_type(int operand) const {
  const Types types = table_.operands[static_cast<std::size_t>(operand)].types;
  return types == Types::kIo ? io_ : types == Types::kState ? state_ : DType::kF32;
}

Extents OperandCheck::output_shape(int at) const {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  if (operand.gradient_of >= 0) {
    return views_[static_cast<std::size_t>(operand.gradient_of)].shape();
  }
  std::array<std::int64_t, Extents::kMaxRank> shape{};
  std::size_t rank = 0;
  const bool left_out = may_leave_out(operand) && rows_leave_out_;
  for (int dim = left_out ? 1 : 0; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    if (is_absent(operand.sizes[i])) continue;
    shape[rank++] = size_or_other(operand.sizes[i]) + operand.plus[i];
  }
  return Extents(std::span<const std::int64_t>(shape.data(), rank));
}

void OperandCheck::make_canonical(void* args) const {
  for (std::size_t i = 0; i < table_.operands.size(); ++i) {
    const OperandInfo& operand = table_.operands[i];
    if (operand.leading == Leading::kThere && !may_leave_out(operand)) continue;
    if (!views_[i].given() || views_[i].rank() == rank_from(operand, 0)) continue;
    operand.add_leading(args, size_or_other(operand.sizes[0]));
  }
}

}  // namespace attune
