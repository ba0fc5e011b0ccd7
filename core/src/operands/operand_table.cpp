#include <algorithm>

#include <attune/core/error.hpp>
#include <attune/core/operand_table.hpp>

namespace attune {
namespace {

const SizeInfo& size_of_dim(const OperandTable& table, const OperandInfo& operand, int dim) {
  return table.sizes[static_cast<std::size_t>(operand.sizes[static_cast<std::size_t>(dim)])];
}

/// A size of a problem.
std::int64_t value_of(const OperandTable& table, const SizeInfo& size, const void* problem) {
  if (size.constant >= 0) return size.constant;
  const std::int64_t value = size.get != nullptr ? size.get(problem) : 0;
  if (value != 0 || size.otherwise < 0) return value;
  return value_of(table, table.sizes[static_cast<std::size_t>(size.otherwise)], problem);
}

bool may_be_absent(const OperandTable& table, const OperandInfo& operand) {
  for (int dim = 0; dim < operand.rank(); ++dim) {
    if (size_of_dim(table, operand, dim).rule.is_absent_at_0) return true;
  }
  return false;
}

/// Whether an operand of a problem does not have this dimension.
bool is_absent(const SizeInfo& size, const void* problem) {
  return size.rule.is_absent_at_0 && (size.get == nullptr || size.get(problem) == 0);
}

/// `least`: without the dimensions that it may be without.
std::string dims_text(const OperandTable& table, const OperandInfo& operand, int first,
                      bool least = false) {
  std::string text = "[";
  for (int dim = first; dim < operand.rank(); ++dim) {
    if (least && size_of_dim(table, operand, dim).rule.is_absent_at_0) continue;
    if (text.size() > 1) text += ',';
    for (const char c : operand.dims.names[static_cast<std::size_t>(dim)]) {
      if (c != ' ') text += c;
    }
  }
  return text + ']';
}

}  // namespace

std::vector<OperandText> operand_texts(const OperandTable& table) {
  std::vector<OperandText> texts;
  std::string io, state;  // the operands that decide
  for (const OperandInfo& operand : table.operands) {
    const bool missing = operand.leading == Leading::kMissing;
    OperandText text{std::string(operand.name), dims_text(table, operand, missing ? 1 : 0), ""};
    if (operand.leading == Leading::kMayBeMissing) {
      text.shape = dims_text(table, operand, 1) + " or " + text.shape;
    }
    if (may_be_absent(table, operand)) {
      text.shape = dims_text(table, operand, 0, true) + " or " + text.shape;
    }
    switch (operand.types) {
      case Types::kIo:
        text.types = io.empty() ? "f32, f16, bf16" : io + "'s";
        if (io.empty()) io = operand.name;
        break;
      case Types::kF32:
        text.types = "f32";
        break;
      case Types::kF32OrIo:
        text.types = "f32 or " + io + "'s";
        break;
      case Types::kState:
        text.types = state.empty() ? "f32, f16, bf16" : state + "'s";
        if (state.empty()) state = operand.name;
        break;
      case Types::kIndex:
        text.types = "i32, i64";
        break;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

bool operand_given(const OperandTable& table, const OperandInfo& operand, const void* problem) {
  if (operand.with >= 0 &&
      !operand_given(table, table.operands[static_cast<std::size_t>(operand.with)], problem)) {
    return false;
  }
  if (operand.given != nullptr) return operand.given(problem);
  if (!operand.optional) return true;
  if (operand.gradient_of < 0) return false;
  return operand_given(table, table.operands[static_cast<std::size_t>(operand.gradient_of)],
                       problem);
}

Extents operand_shape(const OperandTable& table, const OperandInfo& operand, const void* problem) {
  std::array<std::int64_t, Extents::kMaxRank> shape{};
  std::size_t rank = 0;
  for (int dim = operand.leading == Leading::kThere ? 0 : 1; dim < operand.rank(); ++dim) {
    const SizeInfo& size = size_of_dim(table, operand, dim);
    if (is_absent(size, problem)) continue;
    shape[rank++] = value_of(table, size, problem) + operand.plus[static_cast<std::size_t>(dim)];
  }
  return Extents(std::span<const std::int64_t>(shape.data(), rank));
}

void check_problem_sizes(const OperandTable& table, const void* problem) {
  for (const SizeInfo& size : table.sizes) {
    if (size.get == nullptr) continue;
    const std::int64_t value = size.get(problem);
    const auto refuse = [&](const auto&... expected) {
      throw InvalidArgument(
          str(table.op, ": ", size.rule.name, ": got ", value, ", expected ", expected...));
    };
    if (size.divides >= 0) {
      const SizeInfo& whole = table.sizes[static_cast<std::size_t>(size.divides)];
      if (value < 1 || whole.get(problem) % value != 0) refuse("a divisor of ", whole.rule.name);
    } else if (value < size.rule.least) {
      refuse("at least ", size.rule.least);
    }
  }
}

double operand_bytes(const OperandTable& table, const void* problem, const ElementTypes& types) {
  double sum = 0;
  for (const OperandInfo& operand : table.operands) {
    if (!operand_given(table, operand, problem)) continue;
    double bytes = 4;
    if (operand.types == Types::kIo || (operand.types == Types::kF32OrIo && types.gates == 1)) {
      bytes = static_cast<double>(size_of(types.io));
    } else if (operand.types == Types::kState) {
      bytes = static_cast<double>(size_of(types.state));
    } else if (operand.types == Types::kIndex) {
      bytes = 8;
    }
    if (operand.role == Role::kState) bytes *= 2;  // read and written
    for (int dim = operand.leading == Leading::kThere ? 0 : 1; dim < operand.rank(); ++dim) {
      const SizeInfo& size = size_of_dim(table, operand, dim);
      if (is_absent(size, problem)) continue;
      std::int64_t value = value_of(table, size, problem);
      if (size.used >= 0) {
        const SizeInfo& used = table.sizes[static_cast<std::size_t>(size.used)];
        value = std::min(value, value_of(table, used, problem));
      }
      bytes *= static_cast<double>(value) +
               static_cast<double>(operand.plus[static_cast<std::size_t>(dim)]);
    }
    sum += bytes;
  }
  return sum;
}

}  // namespace attune
