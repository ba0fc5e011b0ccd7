#include "rows.hpp"

#include <bit>
#include <cmath>
#include <type_traits>

#include <attune/core/error.hpp>

namespace attune::cpu::reference {
namespace {

struct RowPlace {
  std::int64_t offset = 0;  // of its first element
  std::int64_t step = 1;    // between its elements
};

template <class View>
RowPlace place_of(const View& view, Index index) {
  RowPlace place;
  int dim = 0;
  for (const std::int64_t i : index) place.offset += i * view.stride(dim++);
  if (dim < view.rank()) place.step = view.stride(dim);
  return place;
}

/// Calls f(T{}) for the element type of `dtype`.
template <class F>
void with_element_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(f16{});
    case DType::kBF16:
      return f(bf16{});
    default:
      throw InvalidArgument(str("reference: dtype ", dtype, ", expected f32, f16 or bf16"));
  }
}

/// `value` rounded to a neighbouring float, to the one with an odd last bit when it is not exact.
/// Rounding that to nearest in fewer bits gives what rounding `value` itself gives; a float rounded
/// to nearest does not, at ties.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return T(round_to_odd(value));
  }
}

/// One of the neighbours of `value`, by the random bits of a column of a state's row.
template <class T>
T stochastically_rounded(double value, const state_rounding::RowKey& key, std::int64_t column) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const std::uint32_t random =
        state_rounding::random_bits(key, static_cast<std::uint32_t>(column));
    const std::uint32_t half = std::is_same_v<T, bf16> ? state_rounding::to_bf16(bits, random)
                                                       : state_rounding::to_f16(bits, random);
    return T::from_bits(static_cast<std::uint16_t>(half));
  }
}

std::int64_t integer_at(const ConstTensorView& view, std::int64_t offset) {
  return view.dtype == DType::kI64 ? static_cast<const std::int64_t*>(view.data)[offset]
                                   : static_cast<const std::int32_t*>(view.data)[offset];
}

/// Elements behind an index of [B, T, H].
std::int64_t width_of(const ConstTensorView& view) { return view.rank() == 4 ? view.size(3) : 1; }

}  // namespace

void load_row(const ConstTensorView& from, Index index, std::span<double> row) {
  const RowPlace place = place_of(from, index);
  with_element_type(from.dtype, [&]<class T>(T) {
    const T* const first = static_cast<const T*>(from.data) + place.offset;
    const auto count = static_cast<std::int64_t>(row.size());
    for (std::int64_t i = 0; i < count; ++i) {
      row[i] = static_cast<double>(static_cast<float>(first[i * place.step]));
    }
  });
}

void store_row(const TensorView& to, Index index, std::span<const double> row) {
  const RowPlace place = place_of(to, index);
  with_element_type(to.dtype, [&]<class T>(T) {
    T* const first = static_cast<T*>(to.data) + place.offset;
    const auto count = static_cast<std::int64_t>(row.size());
    for (std::int64_t i = 0; i < count; ++i) first[i * place.step] = rounded<T>(row[i]);
  });
}

std::int64_t load_integer(const ConstTensorView& from, std::int64_t index) {
  return integer_at(from, index * from.stride(0));
}

std::int64_t load_integer(const ConstTensorView& from, std::int64_t row, std::int64_t column) {
  return integer_at(from, row * from.stride(0) + column * from.stride(1));
}

std::vector<double> load_state(const std::optional<ConstTensorView>& from, std::int64_t n,
                               std::int64_t h, std::int64_t key_dim, std::int64_t value_dim) {
  std::vector<double> state(static_cast<std::size_t>(key_dim * value_dim), 0.0);
  if (!from) return state;
  const auto width = static_cast<std::size_t>(value_dim);
  for (std::int64_t i = 0; i < key_dim; ++i) {
    load_row(*from, {n, h, i}, std::span(state).subspan(i * width, width));
  }
  return state;
}

void store_state(const TensorView& to, std::int64_t n, std::int64_t h,
                 std::span<const double> state, const StateRounding& rounding) {
  const std::int64_t rows = to.size(2), columns = to.size(3);
  const bool to_nearest = rounding.kind == StateRounding::Kind::kNearest;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::span row =
        state.subspan(static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns));
    if (to_nearest) {
      store_row(to, {n, h, i}, row);
      continue;
    }
    const auto key = state_rounding::row_key(rounding.seed, (n * to.size(1) + h) * rows + i);
    const RowPlace place = place_of(to, {n, h, i});
    with_element_type(to.dtype, [&]<class T>(T) {
      T* const first = static_cast<T*>(to.data) + place.offset;
      for (std::int64_t j = 0; j < columns; ++j) {
        first[j * place.step] = stochastically_rounded<T>(row[static_cast<std::size_t>(j)], key, j);
      }
    });
  }
}

HeadTokens head_tokens(const ops::RecurrentAttentionProblem& problem,
                       const std::optional<ConstTensorView>& cu_seqlens, std::int64_t sequence,
                       std::int64_t head) {
  HeadTokens tokens{.sequence = sequence,
                    .head = head,
                    .batch = sequence,
                    .begin = 0,
                    .count = problem.T,
                    .reverse = problem.reverse};
  if (cu_seqlens) {
    tokens.batch = 0;
    tokens.begin = load_integer(*cu_seqlens, sequence);
    tokens.count = load_integer(*cu_seqlens, sequence + 1) - tokens.begin;
  }
  return tokens;
}

HeadTokens padded_tokens(const ops::RecurrentAttentionProblem& problem,
                         const std::optional<ConstTensorView>& cu_seqlens) {
  HeadTokens padding;
  padding.begin = cu_seqlens ? load_integer(*cu_seqlens, problem.N) : problem.T;
  padding.count = problem.T - padding.begin;
  return padding;
}

void fill_padded_rows(const TensorView& to, const HeadTokens& padding) {
  if (padding.count == 0) return;
  const std::vector<double> zeros(static_cast<std::size_t>(padding.count * width_of(to)), 0.0);
  for (std::int64_t h = 0; h < to.size(2); ++h) store_rows(to, padding, h, 0, zeros);
}

std::vector<double> load_rows(const ConstTensorView& from, const HeadTokens& tokens,
                              std::int64_t head, std::int64_t first, std::int64_t count) {
  const auto width = static_cast<std::size_t>(width_of(from));
  std::vector<double> rows(static_cast<std::size_t>(count) * width);
  for (std::int64_t p = 0; p < count; ++p) {
    load_row(from, {tokens.batch, tokens.time_of(first + p), head},
             std::span(rows).subspan(p * width, width));
  }
  return rows;
}

void store_rows(const TensorView& to, const HeadTokens& tokens, std::int64_t head,
                std::int64_t first, std::span<const double> rows) {
  const auto width = static_cast<std::size_t>(width_of(to));
  const auto count = static_cast<std::int64_t>(rows.size() / width);
  for (std::int64_t p = 0; p < count; ++p) {
    store_row(to, {tokens.batch, tokens.time_of(first + p), head}, rows.subspan(p * width, width));
  }
}

}  // namespace attune::cpu::reference
