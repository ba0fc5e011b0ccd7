#include "head_tokens.hpp"

#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

/// Elements behind an index of [B, T, H].
std::int64_t width_of(const ConstTensorView& view) { return view.rank() == 4 ? view.size(3) : 1; }

}  // namespace

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
