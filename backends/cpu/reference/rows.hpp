// Between tensors and the recurrence: rows of host tensors as doubles, and which tokens a head has
// in which order.
//
// Any floating-point type, any strides. The row at an index of the leading dimensions runs along
// the next one; at a full index lies one element. Loads are exact. A store rounds once, to nearest,
// ties to even; that of a state as it is asked to.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include <attune/core/state_rounding.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "recurrence.hpp"

namespace attune::cpu::reference {

// ---- rows and states ----

using Index = std::initializer_list<std::int64_t>;

void load_row(const ConstTensorView& from, Index index, std::span<double> row);
void store_row(const TensorView& to, Index index, std::span<const double> row);

/// Element `index` of an i32 or i64 vector.
std::int64_t load_integer(const ConstTensorView& from, std::int64_t index);
/// Element [row, column] of a matrix of them.
std::int64_t load_integer(const ConstTensorView& from, std::int64_t row, std::int64_t column);

/// Matrix [n, h] of a [N, H, K, V] tensor, dense; zeros when there is no tensor.
std::vector<double> load_state(const std::optional<ConstTensorView>& from, std::int64_t n,
                               std::int64_t h, std::int64_t key_dim, std::int64_t value_dim);
void store_state(const TensorView& to, std::int64_t n, std::int64_t h,
                 std::span<const double> state, const StateRounding& rounding = {});

// ---- the tokens of a head ----

/// The tokens of one head of one sequence. Their positions count in the order in which they are
/// processed.
struct HeadTokens {
  std::int64_t sequence = 0;
  std::int64_t head = 0;   // as q counts them; k and v are read with the kv head's
  std::int64_t batch = 0;  // where the sequence lies in q, k, v and o
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool reverse = false;

  std::int64_t time_of(std::int64_t position) const {
    return reverse ? begin + count - 1 - position : begin + position;
  }
};

HeadTokens head_tokens(const ops::RecurrentAttentionProblem& problem,
                       const std::optional<ConstTensorView>& cu_seqlens, std::int64_t sequence,
                       std::int64_t head);

/// The tokens behind the last sequence of a padded batch: of all of its heads, one after the other.
HeadTokens padded_tokens(const ops::RecurrentAttentionProblem& problem,
                         const std::optional<ConstTensorView>& cu_seqlens);
/// Zeros there, in a [B, T, H, D] or [B, T, H] tensor.
void fill_padded_rows(const TensorView& to, const HeadTokens& padding);

/// Rows [count, D] at positions first .. first + count - 1 of a [B, T, H, D] tensor, or [count] of
/// a [B, T, H] one. `head` may be another than the tokens' own.
std::vector<double> load_rows(const ConstTensorView& from, const HeadTokens& tokens,
                              std::int64_t head, std::int64_t first, std::int64_t count);
void store_rows(const TensorView& to, const HeadTokens& tokens, std::int64_t head,
                std::int64_t first, std::span<const double> rows);

/// Positions first .. first + count - 1 of one head. `Args` is that of the forward pass, of the
/// backward pass, or of a summary, which has no q.
template <class Args>
TokenBlock load_tokens(const ops::RecurrentAttentionProblem& problem, const Args& args,
                       const HeadTokens& tokens, std::int64_t first, std::int64_t count) {
  const std::int64_t kv_head = tokens.head / (problem.H / problem.Hkv);
  const auto rows = [&](const ConstTensorView& from, std::int64_t head) {
    return load_rows(from, tokens, head, first, count);
  };
  TokenBlock block{.count = count,
                   .key_dim = problem.K,
                   .value_dim = problem.V,
                   .scale = args.scale,
                   .k = rows(args.k, kv_head),
                   .v = rows(args.v, kv_head),
                   .g = std::vector<double>(static_cast<std::size_t>(count), 0.0)};
  if constexpr (requires { args.q; }) block.q = rows(args.q, tokens.head);
  if (args.g) block.g = rows(*args.g, tokens.head);
  if (args.gk) block.gk = rows(*args.gk, tokens.head);
  if (args.gv) block.gv = rows(*args.gv, tokens.head);
  const double gamma = ops::gamma_of(args.gamma, tokens.sequence, tokens.head, problem.H);
  for (double& g : block.g) g += gamma;
  return block;
}

}  // namespace attune::cpu::reference
