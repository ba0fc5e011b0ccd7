#include <span>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/kernels.hpp"
#include "recurrence.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::RecurrentDecode;
using Problem = RecurrentDecode::Problem;
using Args = RecurrentDecode::Args;

/// Before any state is touched, and on every launch: a plan's indices change between launches.
void check_indices(const Problem& problem, const Args& args) {
  for (std::int64_t row = 0; row < problem.B; ++row) {
    ops::decode_row(problem, args, row);
    for (std::int64_t t = 0; problem.kept && t < problem.tokens(); ++t) {
      ops::kept_slot(problem, args, row, t);
    }
  }
}

/// Tokens of one kind, of one row and head.
struct TokenViews {
  const ConstTensorView* q = nullptr;  // none of those that are not read
  const ConstTensorView& k;
  const ConstTensorView& v;
  const std::optional<ConstTensorView>&g, &gk, &gv;
};

TokenViews new_tokens(const Args& args) {
  return {&args.q, args.k, args.v, args.g, args.gk, args.gv};
}
TokenViews committed_tokens(const Args& args) {
  return {nullptr,          *args.committed_k, *args.committed_v,
          args.committed_g, args.committed_gk, args.committed_gv};
}

/// The first `count` tokens of head h of row b.
TokenBlock load_tokens(const Problem& problem, const Args& args, const TokenViews& tokens,
                       std::int64_t count, std::int64_t b, std::int64_t h) {
  const std::int64_t kv_head = h / (problem.H / problem.Hkv);
  const bool has_tokens = tokens.k.rank() == 4;  // [B, T, H, D], not [B, H, D]
  const auto rows = [&](const ConstTensorView& from, std::int64_t head, std::int64_t width) {
    std::vector<double> values(static_cast<std::size_t>(count * width));
    for (std::int64_t t = 0; t < count; ++t) {
      const std::span row = std::span(values).subspan(static_cast<std::size_t>(t * width),
                                                      static_cast<std::size_t>(width));
      if (has_tokens) {
        load_row(from, {b, t, head}, row);
      } else {
        load_row(from, {b, head}, row);
      }
    }
    return values;
  };
  TokenBlock block{.count = count,
                   .key_dim = problem.K,
                   .value_dim = problem.V,
                   .scale = args.scale,
                   .k = rows(tokens.k, kv_head, problem.K),
                   .v = rows(tokens.v, kv_head, problem.V),
                   .g = std::vector<double>(static_cast<std::size_t>(count), 0.0)};
  if (tokens.q != nullptr) block.q = rows(*tokens.q, h, problem.K);
  if (tokens.g) block.g = rows(*tokens.g, h, 1);
  if (tokens.gk) block.gk = rows(*tokens.gk, h, problem.K);
  if (tokens.gv) block.gv = rows(*tokens.gv, h, problem.V);
  for (double& g : block.g) g += ops::gamma_of(args.gamma, 0, h, problem.H);
  return block;
}

void store_outputs(const Args& args, std::int64_t b, std::int64_t h, std::span<const double> o) {
  const auto width = static_cast<std::size_t>(args.o.size(args.o.rank() - 1));
  for (std::size_t t = 0; t * width < o.size(); ++t) {
    const std::span row = o.subspan(t * width, width);
    if (args.o.rank() == 4) {
      store_row(args.o, {b, static_cast<std::int64_t>(t), h}, row);
    } else {
      store_row(args.o, {b, h}, row);
    }
  }
}

void run_head(const Problem& problem, const Args& args, std::int64_t b, std::int64_t h) {
  std::vector<double> o(static_cast<std::size_t>(problem.tokens() * problem.V), 0.0);
  const ops::DecodeRow row = ops::decode_row(problem, args, b);
  if (row.start >= 0) {
    std::vector<double> state = load_state(args.state, row.start, h, problem.K, problem.V);
    const auto store = [&](std::int64_t slot, std::span<const double> values) {
      if (slot >= 0) store_state(args.state, slot, h, values, args.rounding);
    };
    const TokenBlock block = load_tokens(problem, args, new_tokens(args), problem.tokens(), b, h);
    if (problem.kept) {
      const std::vector<double> states = states_through(block, state);
      for (std::int64_t t = 0; t < problem.tokens(); ++t) {
        store(ops::kept_slot(problem, args, b, t),
              std::span(states).subspan(static_cast<std::size_t>(t + 1) * state.size(),
                                        state.size()));
      }
    }
    if (row.committed > 0) {
      advance(load_tokens(problem, args, committed_tokens(args), row.committed, b, h), state);
      store(row.start, state);
    }
    advance(block, state, o);
    if (!problem.kept && problem.R == 0) store(row.start, state);
  }
  store_outputs(args, b, h, o);
}

/// One task a row and query head.
class RecurrentDecodeKernel final : public ReferenceKernel<RecurrentDecode> {
 public:
  std::string_view name() const noexcept override { return "reference.recurrent_decode"; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    check_indices(problem, args);
    parallel_for(problem.B * problem.H, usable_cores(), [&](std::int64_t task) {
      run_head(problem, args, task / problem.H, task % problem.H);
    });
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_decode() {
  return std::make_unique<RecurrentDecodeKernel>();
}

}  // namespace attune::cpu::reference
