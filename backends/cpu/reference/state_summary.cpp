#include <algorithm>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cpu/kernels.hpp"
#include "recurrence.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::StateSummary;

/// Tokens held as doubles at a time.
constexpr std::int64_t kTokensPerBlock = 64;

/// Adds the log decays of a block's tokens.
void add_logs(const TokenBlock& block, std::vector<double>& keys, std::vector<double>& values) {
  for (std::int64_t t = 0; t < block.count; ++t) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = static_cast<std::size_t>(t) * keys.size() + i;
      keys[i] += block.g[static_cast<std::size_t>(t)] + (block.gk.empty() ? 0.0 : block.gk[at]);
    }
    for (std::size_t j = 0; j < values.size() && !block.gv.empty(); ++j) {
      values[j] += block.gv[static_cast<std::size_t>(t) * values.size() + j];
    }
  }
}

void summarise_head(const StateSummary::Problem& problem, const StateSummary::Args& args,
                    const HeadTokens& tokens) {
  const ops::RecurrentAttentionProblem walk = problem.walk();
  std::vector<double> state =
      load_state(args.initial_state, tokens.sequence, tokens.head, problem.K, problem.V);
  std::vector<double> keys(static_cast<std::size_t>(problem.K), 0.0);
  std::vector<double> values(static_cast<std::size_t>(problem.V), 0.0);
  for (std::int64_t first = 0; first < tokens.count; first += kTokensPerBlock) {
    const std::int64_t count = std::min(kTokensPerBlock, tokens.count - first);
    TokenBlock block = load_tokens(walk, args, tokens, first, count);
    block.inclusive = problem.inclusive;
    for (double& k : block.k) k *= args.scale;
    reference::advance(block, state);
    add_logs(block, keys, values);
  }
  store_state(args.final_state, tokens.sequence, tokens.head, state);
  store_row(args.gk_sum, {tokens.sequence, tokens.head}, keys);
  if (args.gv_sum) store_row(*args.gv_sum, {tokens.sequence, tokens.head}, values);
}

/// One task a sequence and head.
class StateSummaryKernel final : public ReferenceKernel<StateSummary> {
 public:
  std::string_view name() const noexcept override { return "reference.state_summary"; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    parallel_for(problem.sequences() * problem.H, usable_cores(), [&](std::int64_t task) {
      const std::int64_t sequence = task / problem.H;
      const std::int64_t head = task % problem.H;
      summarise_head(problem, args, head_tokens(problem.walk(), args.cu_seqlens, sequence, head));
    });
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_state_summary() {
  return std::make_unique<StateSummaryKernel>();
}

}  // namespace attune::cpu::reference
