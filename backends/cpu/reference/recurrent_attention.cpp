#include <algorithm>
#include <vector>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/kernels.hpp"
#include "recurrence.hpp"
#include "reference_kernel.hpp"
#include "rows.hpp"

namespace attune::cpu::reference {
namespace {

using ops::RecurrentAttention;

/// Tokens held as doubles at a time.
constexpr std::int64_t kTokensPerBlock = 64;

void run_head(const RecurrentAttention::Problem& problem, const RecurrentAttention::Args& args,
              const HeadTokens& tokens) {
  std::vector<double> state =
      load_state(args.initial_state, tokens.sequence, tokens.head, problem.K, problem.V);
  std::vector<double> o;
  for (std::int64_t first = 0; first < tokens.count; first += kTokensPerBlock) {
    const std::int64_t count = std::min(kTokensPerBlock, tokens.count - first);
    advance(load_tokens(problem, args, tokens, first, count), state, o);
    store_rows(args.o, tokens, tokens.head, first, o);
  }
  if (args.final_state) store_state(*args.final_state, tokens.sequence, tokens.head, state);
}

/// One task a sequence and query head. final_state may be initial_state: a head reads all of its
/// own before it writes.
class RecurrentAttentionKernel final : public ReferenceKernel<RecurrentAttention> {
 public:
  std::string_view name() const noexcept override { return "reference.recurrent_attention"; }

  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    parallel_for(problem.sequences() * problem.H, usable_cores(), [&](std::int64_t task) {
      const std::int64_t sequence = task / problem.H;
      const std::int64_t head = task % problem.H;
      run_head(problem, args, head_tokens(problem, args.cu_seqlens, sequence, head));
    });
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention() {
  return std::make_unique<RecurrentAttentionKernel>();
}

}  // namespace attune::cpu::reference
