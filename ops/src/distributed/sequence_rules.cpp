#include "distributed/sequence_rules.hpp"

#include <attune/core/count_text.hpp>

#include "operands/call_site.hpp"

namespace attune::ops::distributed {

void check_exchange(std::string_view op, const attune::distributed::Exchange& exchange, int rank,
                    int ranks) {
  if (exchange.rank() == rank && exchange.size() == ranks) return;
  refuse(op, "exchange", "rank ", exchange.rank(), " of ", exchange.size(),
         ", expected the layout's ", rank, " of ", ranks);
}

template <class Op>
RecurrentAttentionProblem walk_problem(AttentionCall<Op>& call, const SequenceLayout& layout) {
  const std::string_view op = call.rules.name;
  const auto fragments = static_cast<std::int64_t>(layout.fragments().size());
  if (fragments == 0) {
    // Whatever there is for others: this rank has one sequence without tokens.
    call.args.cu_seqlens.reset();
    call.rules.cu_seqlens_host.reset();
    call.args.initial_state.reset();
    call.rules.want_final_state = false;
    if constexpr (kIsBackward<Op>) call.args.dfinal_state.reset();
  }
  RecurrentAttentionProblem problem =
      OperandCall(call.rules, call.args, CheckLevel::kMetadata).without_outputs();
  if (problem.pool) refuse(op, "states", "given, expected none for sequences over ranks");
  if (problem.state_dtype != DType::kF32) {
    refuse(op, "initial_state", "dtype ", problem.state_dtype,
           ", expected f32 for sequences over ranks");
  }
  if constexpr (kIsBackward<Op>) {
    if (!call.args.d_o) refuse(op, "d_o", "not given, expected for sequences over ranks");
  }
  const std::int64_t tokens = layout.local_cu_seqlens().back();
  if (problem.B * problem.T != tokens) {
    refuse(op, "q", "shape ", call.args.q.shape, ", expected the layout's ",
           count_text(tokens, "token"));
  }
  if (fragments == 0) return problem;
  if (problem.sequences() != fragments) {
    refuse(op, "cu_seqlens", count_text(problem.sequences(), "sequence"),
           ", expected the layout's ", count_text(fragments, "fragment"));
  }
  for (std::int64_t f = 0; problem.N == 0 && f < fragments; ++f) {
    const auto at = static_cast<std::size_t>(f);
    const std::int64_t own = layout.local_cu_seqlens()[at + 1] - layout.local_cu_seqlens()[at];
    if (own == problem.T) continue;
    refuse(op, "cu_seqlens", "not given, and fragment ", f, " has ", count_text(own, "token"),
           " of ", problem.T);
  }
  problem.h0 = true;
  if (kIsBackward<Op>) problem.ht = true;
  return problem;
}

template RecurrentAttentionProblem walk_problem(ForwardCall&, const SequenceLayout&);
template RecurrentAttentionProblem walk_problem(BackwardCall&, const SequenceLayout&);

bool is_shared(const ConstantDecay& gamma) {
  using Source = ConstantDecay::Source;
  return gamma.source == Source::kSlopes ||
         (gamma.source == Source::kValues && gamma.values.rank() == 1);
}

void check_alike(std::string_view op, const std::vector<Announcement>& all, int self) {
  const Announcement& own = all[static_cast<std::size_t>(self)];
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Announcement& other = all[rank];
    if (other.made == 0) throw ExecutionError(str(op, ": rank ", rank, " could not make its plan"));
    if (other.layout != own.layout) {
      refuse(op, "layout", "rank ", rank, " has another one than rank ", self);
    }
    if (other.problem != own.problem) {
      refuse(op, "problem", "rank ", rank,
             " has other sizes, types, gates or another pass than rank ", self);
    }
  }
}

}  // namespace attune::ops::distributed
