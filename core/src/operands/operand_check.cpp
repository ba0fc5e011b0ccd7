#include <attune/core/operand_check.hpp>

namespace attune {
namespace {

constexpr std::int64_t kUnset = -1;

}  // namespace

OperandCheck::OperandCheck(const OperandTable& table, std::string_view op, CheckLevel level,
                           ArgsForm form)
    : CallCheck(op, level), table_(table), form_(form) {
  for (std::size_t i = 0; i < table.sizes.size(); ++i) sizes_[i] = table.sizes[i].constant;
}

std::string_view OperandCheck::name_of(int operand) const {
  for (std::size_t i = 0; i < renames_; ++i) {
    if (renamed_[i].operand == operand) operand = renamed_[i].to;
  }
  const OperandInfo& info = table_.operands[static_cast<std::size_t>(operand)];
  return form_ == ArgsForm::kFile ? info.file_name : info.name;
}

void OperandCheck::inputs(const void* args) {
  for (std::size_t i = 0; i < table_.operands.size(); ++i) {
    if (!table_.operands[i].is_output()) check(static_cast<int>(i), args);
  }
}

void OperandCheck::outputs(const void* args) {
  for (std::size_t i = 0; i < table_.operands.size(); ++i) {
    if (table_.operands[i].is_output()) check(static_cast<int>(i), args);
  }
}

void OperandCheck::check(int at, const void* args) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const ViewRef view = operand.view(args);
  if (operand.optional && operand.gradient_of >= 0) return check_gradient(at, view, args);
  if (!view.given()) return;
  check_shape(at, view);
  check_type(at, view);
  check_sizes(at, view, first_dim(operand, view));
  if (operand.is_contiguous) dense_rows(name_of(at), view);
  check_memory(at, view);
}

void OperandCheck::check_gradient(int at, const ViewRef& view, const void* args) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const OperandInfo& input = table_.operands[static_cast<std::size_t>(operand.gradient_of)];
  const ViewRef of = input.view(args);
  if (!view.given() && !of.given()) return;
  const auto refuse_with = [&](const auto&... what) { refuse(name_of(at), what...); };
  const auto input_name = [&] { return name_of(operand.gradient_of); };
  if (!view.given()) refuse_with("not given, expected with ", input_name());
  if (!of.given()) refuse_with("given without ", input_name());
  if (view.shape() != of.shape()) {
    refuse_with("shape ", view.shape(), ", expected ", of.shape(), " (", input_name(), "'s)");
  }
  check_type(at, view);
  if (operand.is_contiguous) dense_rows(name_of(at), view);
  check_memory(at, view);
}

/// The position of the dim that is the view's first.
int OperandCheck::first_dim(const OperandInfo& operand, const ViewRef& view) const {
  if (form_ == ArgsForm::kCanonical) return 0;
  if (operand.leading == Leading::kMissing) return 1;
  if (operand.leading == Leading::kMayBeMissing) return view.rank() == operand.rank() ? 0 : 1;
  return operand.sizes[0] == left_out_ && view.rank() < operand.rank() ? 1 : 0;
}

void OperandCheck::check_shape(int at, const ViewRef& view) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const int first = first_dim(operand, view);
  std::array<Dim, Extents::kMaxRank> expected;
  for (int dim = first; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    const auto id = static_cast<std::size_t>(operand.sizes[i]);
    if (const int other = table_.sizes[id].otherwise; sizes_[id] == kUnset && other >= 0) {
      sizes_[id] = size(other);
      defaulted_ |= 1U << id;
    }
    Dim& is = expected[static_cast<std::size_t>(dim - first)];
    is.name = operand.dims.names[i];
    if (sizes_[id] != kUnset) is.size = sizes_[id] + operand.plus[i];
  }
  const auto rank = static_cast<std::size_t>(operand.rank() - first);
  shape(name_of(at), view, std::span<const Dim>(expected).first(rank),
        may_leave_out(operand) ? left_out_when_ : std::string_view());
}

void OperandCheck::check_type(int at, const ViewRef& view) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const DType is = view.dtype();
  switch (operand.types) {
    case Types::kIo:
      if (io_operand_ < 0) {
        if (!is_floating(is)) refuse(name_of(at), "dtype ", is, ", expected f32, f16 or bf16");
        io_operand_ = at;
        io_ = is;
      } else if (is != io_) {
        refuse(name_of(at), "dtype ", is, ", expected ", io_, " (", name_of(io_operand_), "'s)");
      }
      return;
    case Types::kF32:
      if (is != DType::kF32) dtype(name_of(at), view, DType::kF32);
      return;
    case Types::kF32OrIo:
      if (is == DType::kF32) {
        gates_f32_ = true;
      } else if (is == io_) {
        gates_io_ = true;
      } else if (io_ == DType::kF32) {
        dtype(name_of(at), view, DType::kF32);
      } else {
        refuse(name_of(at), "dtype ", is, ", expected f32 or ", io_, " (", name_of(io_operand_),
               "'s)");
      }
      return;
    case Types::kIndex:
      index_dtype(name_of(at), view);
      return;
  }
}

/// Sets the sizes that this operand is the first to name.
void OperandCheck::check_sizes(int at, const ViewRef& view, int first) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  if (first == 1 && operand.sizes[0] == left_out_) set_size(left_out_, 1);
  if (at == 0) rows_leave_out_ = first == 1;
  for (int dim = first; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    const auto id = static_cast<std::size_t>(operand.sizes[i]);
    if (sizes_[id] != kUnset) continue;
    const std::int64_t size = view.size(dim - first) - operand.plus[i];
    const SizeInfo& info = table_.sizes[id];
    if (info.divides >= 0) {
      const std::int64_t whole = this->size(info.divides);
      if (size < 1 || whole % size != 0) {
        refuse(name_of(at), size, " ", info.rule.plural, ", expected a divisor of ",
               name_of(set_by_[static_cast<std::size_t>(info.divides)]), "'s ", whole);
      }
    } else if (size < info.rule.least) {
      if (info.rule.least_text.empty()) {
        refuse(name_of(at), "shape ", view.shape(), ", expected ", info.rule.name,
               " >= ", info.rule.least);
      }
      refuse(name_of(at), "shape ", view.shape(), ", expected ", info.rule.least_text);
    }
    sizes_[id] = size;
    set_by_[id] = static_cast<std::int8_t>(at);
  }
}

void OperandCheck::check_memory(int at, const ViewRef& view) {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  const std::string_view name = name_of(at);
  if (operand.role == Role::kState) return output(name, view);
  if (!operand.is_output()) return input(name, view);
  if (!operand.in_place_of.empty()) return output_or_in_place(name, view, operand.in_place_of);
  if (form_ == ArgsForm::kCanonical && operand.leading != Leading::kThere) {
    return summed_output(name, view);
  }
  output(name, view);
}

/// A size, or the one that it is where no operand has set it.
std::int64_t OperandCheck::size_or_other(int at) const {
  const int other = table_.sizes[static_cast<std::size_t>(at)].otherwise;
  return size(at) == kUnset && other >= 0 ? size(other) : size(at);
}

DType OperandCheck::output_type(int operand) const {
  return table_.operands[static_cast<std::size_t>(operand)].types == Types::kIo ? io_ : DType::kF32;
}

Extents OperandCheck::output_shape(int at, const void* args) const {
  const OperandInfo& operand = table_.operands[static_cast<std::size_t>(at)];
  if (operand.gradient_of >= 0) {
    return table_.operands[static_cast<std::size_t>(operand.gradient_of)].view(args).shape();
  }
  std::array<std::int64_t, Extents::kMaxRank> shape{};
  std::size_t rank = 0;
  const bool left_out = may_leave_out(operand) && rows_leave_out_;
  for (int dim = left_out ? 1 : 0; dim < operand.rank(); ++dim) {
    const auto i = static_cast<std::size_t>(dim);
    shape[rank++] = size_or_other(operand.sizes[i]) + operand.plus[i];
  }
  return Extents(std::span<const std::int64_t>(shape.data(), rank));
}

void OperandCheck::set_fields(void* problem, const void* args) const {
  for (std::size_t i = 0; i < table_.sizes.size(); ++i) {
    const SizeInfo& size = table_.sizes[i];
    if (size.set == nullptr || sizes_[i] == kUnset || (defaulted_ >> i & 1U) != 0) continue;
    size.set(problem, sizes_[i]);
  }
  for (const OperandInfo& operand : table_.operands) {
    if (operand.set_given != nullptr) operand.set_given(problem, operand.view(args).given());
  }
}

void OperandCheck::make_canonical(void* args) const {
  for (const OperandInfo& operand : table_.operands) {
    if (operand.leading == Leading::kThere && !may_leave_out(operand)) continue;
    const ViewRef view = operand.view(args);
    if (!view.given() || view.rank() == operand.rank()) continue;
    operand.add_leading(args, size_or_other(operand.sizes[0]));
  }
}

}  // namespace attune
