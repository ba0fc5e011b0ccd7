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

/// Tokens held as doubles at a time. Snapshots are multiples of it apart.
constexpr std::int64_t kTokensPerBlock = 64;

std::vector<double> first_state(const RecurrentAttention::Problem& problem,
                                const RecurrentAttention::Args& args, const HeadTokens& tokens) {
  if (!args.states) {
    return load_state(args.initial_state, tokens.sequence, tokens.head, problem.K, problem.V);
  }
  const std::int64_t slot = load_integer(args.first_slots(), tokens.sequence);
  const auto from = slot >= 0 ? std::optional<ConstTensorView>(*args.states) : std::nullopt;
  return load_state(from, slot, tokens.head, problem.K, problem.V);
}

/// The state after `done` tokens, where it is a snapshot that is kept.
void keep_snapshot(const RecurrentAttention::Args& args, const HeadTokens& tokens,
                   std::int64_t done, std::span<const double> state) {
  if (args.snapshot_every == 0 || done % args.snapshot_every != 0) return;
  const ConstTensorView& slots = *args.snapshot_slots;
  const std::int64_t m = done / args.snapshot_every - 1;
  if (m >= slots.size(1)) return;
  const std::int64_t slot = load_integer(slots, tokens.sequence, m);
  if (slot >= 0) store_state(*args.states, slot, tokens.head, state, args.state_rounding);
}

void run_head(const RecurrentAttention::Problem& problem, const RecurrentAttention::Args& args,
              const HeadTokens& tokens) {
  std::vector<double> state = first_state(problem, args, tokens);
  std::vector<double> o;
  for (std::int64_t first = 0; first < tokens.count; first += kTokensPerBlock) {
    const std::int64_t count = std::min(kTokensPerBlock, tokens.count - first);
    advance(load_tokens(problem, args, tokens, first, count), state, o);
    store_rows(args.o, tokens, tokens.head, first, o);
    keep_snapshot(args, tokens, first + count, state);
  }
  const StateRounding& rounding = args.state_rounding;
  if (args.final_state) {
    store_state(*args.final_state, tokens.sequence, tokens.head, state, rounding);
  }
  if (!args.states) return;
  const std::int64_t slot = load_integer(*args.final_slots, tokens.sequence);
  if (slot >= 0) store_state(*args.states, slot, tokens.head, state, rounding);
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
    fill_padded_rows(args.o, padded_tokens(problem, args.cu_seqlens));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention() {
  return std::make_unique<RecurrentAttentionKernel>();
}

}  // namespace attune::cpu::reference
