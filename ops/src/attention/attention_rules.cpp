#include "attention/attention_rules.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attention/pool_rules.hpp"
#include "operands/host_indices.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

/// The positions of sizes, which are the same in both passes.
constexpr int kB = size_at<RecurrentAttention>("B");
constexpr int kT = size_at<RecurrentAttention>("T");
constexpr int kH = size_at<RecurrentAttention>("H");
constexpr int kK = size_at<RecurrentAttention>("K");
constexpr int kV = size_at<RecurrentAttention>("V");
constexpr int kN = size_at<RecurrentAttention>("N");
static_assert(kN == size_at<RecurrentAttentionBackward>("N"));

template <class Op>
constexpr bool kIsBackward = std::is_same_v<Op, RecurrentAttentionBackward>;

/// Whether g is [B, T, H, K]. Among packed tensors without their batch dimension that is rank 3,
/// but [1, T, H] is then still a decay for each head.
bool is_per_channel(const ConstTensorView& g, const ConstTensorView& q, bool packed) {
  if (g.rank() != 3 || !packed) return g.rank() == 4;
  if (q.rank() != 3) return false;
  return g.size(0) != 1 || g.size(1) != q.size(0) || g.size(2) != q.size(1);
}

/// Where the sequences of `tokens` packed tokens begin and end. Of two or three the first is longer
/// than the others together. Of more, likewise in a third of the draws; in another they are equally
/// long, and in the last one up to sixteen times as long as another. Of three or more that differ,
/// one is empty.
std::vector<std::int64_t> random_bounds(std::int64_t sequences, std::int64_t tokens,
                                        RandomValues& random) {
  enum class Lengths { kEven, kRagged, kOneLong };
  const auto lengths = sequences > 3 ? static_cast<Lengths>(3 * random.next()) : Lengths::kOneLong;
  const auto weight = [&](std::int64_t n) {
    if (lengths == Lengths::kEven) return 1.0;
    if (n == 1 && sequences >= 3) return 0.0;
    if (lengths == Lengths::kRagged) return std::exp2(4 * random.next());
    return (n == 0 ? static_cast<double>(sequences) : 0.0) + 0.5 + random.next();
  };
  std::vector<double> weights{0};
  for (std::int64_t n = 0; n < sequences; ++n) weights.push_back(weights.back() + weight(n));
  std::vector<std::int64_t> bounds;
  bounds.reserve(weights.size());
  for (const double before : weights) {
    bounds.push_back(std::llround(static_cast<double>(tokens) * before / weights.back()));
  }
  return bounds;
}

Tensor index_tensor(const std::vector<std::int64_t>& values) {
  const Extents shape{static_cast<std::int64_t>(values.size())};
  if (values.back() > std::numeric_limits<std::int32_t>::max()) return Tensor::of(values, shape);
  return Tensor::of(std::vector<std::int32_t>(values.begin(), values.end()), shape);
}

}  // namespace

/// What can be said before q is known: whether sequences are packed, and how many.
template <class Op>
void AttentionRules<Op>::begin(OperandCheck& check, const Args& args) const {
  if (!args.cu_seqlens) {
    if (cu_seqlens_host) check.refuse("cu_seqlens_host", "given without cu_seqlens");
    return;
  }
  const ConstTensorView& bounds = *args.cu_seqlens;
  check.shape("cu_seqlens", bounds, {"N + 1"});
  check.index_dtype("cu_seqlens", bounds);
  if (bounds.size(0) < 2) {
    check.refuse("cu_seqlens", "shape ", bounds.shape, ", expected at least 2 values");
  }
  check.set_size(kN, bounds.size(0) - 1);
  check.may_leave_out(kB, " with cu_seqlens");
  if (args.q.rank() == 4 && args.q.size(0) != 1) {
    check.refuse("q", "shape ", args.q.shape, ", expected B = 1 with cu_seqlens");
  }
}

/// A g of each key channel is gk, but for its name.
template <class Op>
void AttentionRules<Op>::respell(OperandCheck& check, Args& args) const {
  if (!args.g || !is_per_channel(*args.g, args.q, args.cu_seqlens.has_value())) return;
  if (args.gk) {
    check.refuse("g", "shape ", args.g->shape, " has a decay for each key channel, expected ",
                 "[B, T, H] together with gk");
  }
  args.gk = std::exchange(args.g, std::nullopt);
  check.rename(operand_at<Op>("gk"), operand_at<Op>("g"));
  if constexpr (kIsBackward<Op>) {
    if (args.dgk) check.refuse("dgk", "given without gk");
    args.dgk = std::exchange(args.dg, std::nullopt);
    check.rename(operand_at<Op>("dgk"), operand_at<Op>("dg"));
  }
}

template <class Op>
void AttentionRules<Op>::check_sizes(const OperandCheck& check, const Args& args) const {
  const std::int64_t tokens = check.size(kT), heads = check.size(kH);
  const std::int64_t sequences = args.cu_seqlens ? check.size(kN) : check.size(kB);
  if (!fits_memory({check.size(kB), tokens, heads, check.size(kK)})) {
    check.refuse("q", "shape ", args.q.shape, " has more than 2^63 - 1 bytes");
  }
  if (!fits_memory({check.size(kB), tokens, heads, check.size(kV)})) {
    check.refuse("v", "shape ", args.v.shape, " makes an o of more than 2^63 - 1 bytes");
  }
  if (!fits_memory({sequences, heads, check.size(kK), check.size(kV)})) {
    check.refuse("v", "shape ", args.v.shape, " makes states of more than 2^63 - 1 bytes");
  }
}

/// The values of cu_seqlens, where they can be read.
template <class Op>
void AttentionRules<Op>::check_sequences(OperandCheck& check, const Args& args) const {
  if (!args.cu_seqlens) return;
  const bool in_memory = check.level() == CheckLevel::kMemory;
  const bool readable = in_memory && args.cu_seqlens->device == DeviceId{};
  const TokenBounds of{.tokens = check.size(kT), .may_be_padded = true};
  if (readable) check_cu_seqlens(check, "cu_seqlens", *args.cu_seqlens, of);
  if (!cu_seqlens_host) return;
  check.shape("cu_seqlens_host", *cu_seqlens_host, {check.size(kN) + 1});
  check.index_dtype("cu_seqlens_host", *cu_seqlens_host);
  check.host_input("cu_seqlens_host", *cu_seqlens_host);
  if (in_memory) check_cu_seqlens(check, "cu_seqlens_host", *cu_seqlens_host, of);
  if (readable) {
    check_same_indices(check, "cu_seqlens_host", *cu_seqlens_host, "cu_seqlens", *args.cu_seqlens);
  }
}

/// snapshot_every of a call, in whichever form it is.
template <class Op>
std::int64_t AttentionRules<Op>::snapshots_of(const OperandCheck& check, const Args& args) const {
  if constexpr (kIsBackward<Op>) {
    return 0;
  } else {
    return check.form() == ArgsForm::kCanonical ? args.snapshot_every : snapshot_every;
  }
}

template <class Op>
void AttentionRules<Op>::check_inputs(OperandCheck& check, const Args& args) const {
  check_sizes(check, args);
  check_layer(check, args.gamma);
  check_sequences(check, args);
  check_scale(check, check.form() == ArgsForm::kCanonical ? args.scale : scale);
  if constexpr (!kIsBackward<Op>) {
    if (want_final_state && args.states) {
      check.refuse("want_final_state", "given together with states");
    }
    check_pool(check, args, snapshots_of(check, args),
               cu_seqlens_host ? &*cu_seqlens_host : nullptr);
  } else {
    if (!args.d_o && !args.dfinal_state) {
      check.refuse(check.name_of(operand_at<Op>("d_o")),
                   "neither it nor dfinal_state is given, expected at least one");
    }
  }
}

template <class Op>
void AttentionRules<Op>::complete(const OperandCheck& check, const Args& args, bool outputs,
                                  Problem& problem) const {
  if (args.gamma.source != ConstantDecay::Source::kNone) problem.gates |= kGateGamma;
  problem.reverse = reverse;
  problem.tf32 = allow_tf32 && problem.dtype == DType::kF32;
  if constexpr (!kIsBackward<Op>) {
    if (!outputs) problem.ht = want_final_state;
    const bool is_canonical = check.form() == ArgsForm::kCanonical;
    problem.snapshot_every = snapshots_of(check, args);
    if (problem.state_dtype != DType::kF32 && problem.writes_states()) {
      problem.rounding = (is_canonical ? args.state_rounding : state_rounding).kind;
    }
  }
  const bool several_rows = problem.B > 1 || problem.T > 1 || problem.H > 1;
  const RowsLayout layout = layout_of(operand_table<Op>(), check, &RowsLayout::add_tokens, outputs,
                                      several_rows && problem.B > 0 && problem.T > 0);
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
}

template <class Op>
void AttentionRules<Op>::lower(const OperandCheck& check, Args& args) const {
  args.scale = scale_or_default(scale, check.size(kK));
  if constexpr (!kIsBackward<Op>) {
    args.snapshot_every = snapshot_every;
    args.state_rounding = state_rounding;
  }
}

template <class Op>
Extents AttentionRules<Op>::random_shape(const OperandInfo& operand, const Problem& problem) const {
  Extents shape = operand_shape(operand_table<Op>(), operand, &problem);
  if (operand.role == Role::kState) shape[0] = RandomSlots(problem).pool_size();
  return shape;
}

template <class Op>
Tensor AttentionRules<Op>::random_indices(const OperandInfo& operand, const Problem& problem,
                                          RandomValues& random) const {
  if (operand.name == "cu_seqlens")
    return index_tensor(random_bounds(problem.N, problem.T, random));
  const RandomSlots slots(problem);
  if (operand.name == "initial_slots") return slots.initial();
  return operand.name == "final_slots" ? slots.final() : slots.snapshots();
}

template struct AttentionRules<RecurrentAttention>;
template struct AttentionRules<RecurrentAttentionBackward>;

}  // namespace attune::ops
