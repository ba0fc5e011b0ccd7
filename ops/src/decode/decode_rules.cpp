#include "decode/decode_rules.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include <attune/core/count_text.hpp>

#include "operands/host_indices.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

constexpr int kB = size_at<RecurrentDecode>("B");
constexpr int kH = size_at<RecurrentDecode>("H");
constexpr int kK = size_at<RecurrentDecode>("K");
constexpr int kV = size_at<RecurrentDecode>("V");
constexpr int kS = size_at<RecurrentDecode>("S");
constexpr int kT = size_at<RecurrentDecode>("T");
constexpr int kR = size_at<RecurrentDecode>("R");
constexpr int kState = operand_at<RecurrentDecode>("state");

using Args = RecurrentDecodeArgs;
using View = std::optional<ConstTensorView>;

void check_token_count(const OperandCheck& check, std::string_view name, std::int64_t tokens) {
  if (tokens >= 1 && tokens <= kMaxStepTokens) return;
  check.refuse(name, tokens, " tokens a row, expected 1 .. ", kMaxStepTokens);
}

void check_exclusive(const OperandCheck& check, const Args& args) {
  if (!args.kept_slots) return;
  if (!args.accepted) check.refuse("accepted", "not given, expected with kept_slots");
  const auto refuse_with = [&](std::string_view other) {
    check.refuse("kept_slots", "given together with ", other, ", expected one of them");
  };
  if (args.slot_indices) refuse_with("slot_indices");
  if (args.committed_k) refuse_with("committed");
}

/// Committed tokens have what the new ones have.
void check_committed(const OperandCheck& check, const Args& args) {
  if (!args.committed_k) return;
  check_token_count(check, "committed.k", check.size(kR));
  if (!args.committed_v) check.refuse("committed.v", "not given, expected with committed.k");
  if (!args.committed_accepted) {
    check.refuse("committed.accepted", "not given, expected with committed.k");
  }
  const auto check_gate = [&](std::string_view name, const View& gate, std::string_view of_name,
                              const View& of) {
    if (of && !gate) check.refuse(name, "not given, expected with ", of_name);
    if (gate && !of) check.refuse(name, "given without ", of_name);
  };
  check_gate("committed.g", args.committed_g, "g", args.g);
  check_gate("committed.gk", args.committed_gk, "gk", args.gk);
  check_gate("committed.gv", args.committed_gv, "gv", args.gv);
}

/// The values of indices that can be read.
void check_indices(const OperandCheck& check, const Args& args, std::int64_t tokens) {
  if (check.level() != CheckLevel::kMemory) return;
  const auto in_host_memory = [](const View& view) { return view && view->device == DeviceId{}; };
  const std::int64_t slots = check.size(kS);
  if (in_host_memory(args.slot_indices)) {
    check_slot_indices(check, "slot_indices", *args.slot_indices, slots);
  }
  if (in_host_memory(args.kept_slots)) {
    check_slot_indices(check, "kept_slots", *args.kept_slots, slots);
  }
  if (in_host_memory(args.accepted)) check_counts(check, "accepted", *args.accepted, 1, tokens);
  if (in_host_memory(args.committed_accepted)) {
    check_counts(check, "committed.accepted", *args.committed_accepted, 0, check.size(kR));
  }
}

/// Takes out the dimension of tokens, of which there is one.
template <class View>
void drop_tokens(View& view) {
  constexpr int kTokenDim = 1;
  std::array<std::int64_t, Extents::kMaxRank> shape{};
  std::array<std::int64_t, Extents::kMaxRank> strides{};
  std::size_t rank = 0;
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (dim == kTokenDim) continue;
    shape[rank] = view.shape[dim];
    strides[rank++] = view.strides[dim];
  }
  view.shape = Extents(std::span<const std::int64_t>(shape.data(), rank));
  view.strides = Extents(std::span<const std::int64_t>(strides.data(), rank));
}

}  // namespace

void DecodeRules::check_inputs(OperandCheck& check, const Args& args) const {
  const std::int64_t tokens = check.size(kT) == 0 ? 1 : check.size(kT);
  check_token_count(check, "q", tokens);
  if (!fits_memory({check.size(kB), tokens, check.size(kH), check.size(kV)})) {
    check.refuse("v", "shape ", args.v.shape, " makes an o of more than 2^63 - 1 bytes");
  }
  check_exclusive(check, args);
  check_committed(check, args);
  if (!args.slot_indices && !args.kept_slots && check.size(kS) < check.size(kB)) {
    check.refuse(check.name_of(kState), count_text(check.size(kS), "slot"),
                 ", expected at least one for each of ", count_text(check.size(kB), "row"),
                 " without slot_indices");
  }
  check_indices(check, args, tokens);
  check_layer(check, args.gamma);
  check_scale(check, check.form() == ArgsForm::kCanonical ? args.scale : scale);
}

void DecodeRules::complete(const OperandCheck& check, const Args& args, bool outputs,
                           Problem& problem) const {
  const bool canonical = check.form() == ArgsForm::kCanonical;
  if (args.gamma.source != ConstantDecay::Source::kNone) problem.gates |= kGateGamma;
  problem.tf32 = allow_tf32 && problem.dtype == DType::kF32;
  if (problem.state_dtype != DType::kF32) {
    problem.rounding = (canonical ? args.rounding : rounding).kind;
  }
  const RowsLayout layout = layout_of(operand_table<RecurrentDecode>(), check,
                                      &RowsLayout::add_dense, outputs, has_several_rows(problem));
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
  if (!canonical && problem.T == 1) problem.T = 0;
}

void DecodeRules::lower(const OperandCheck& check, Args& args) const {
  args.scale = scale_or_default(scale, check.size(kK));
  args.rounding = rounding;
  if (check.size(kT) != 1) return;
  for (ConstTensorView* view : {&args.q, &args.k, &args.v}) drop_tokens(*view);
  for (View* view : {&args.g, &args.gk, &args.gv, &args.kept_slots}) {
    if (*view) drop_tokens(**view);
  }
  drop_tokens(args.o);
}

/// As indices of slots: in no order, none of them twice, none where there are no more.
Tensor DecodeRules::random_indices(const OperandInfo& operand, const Problem& problem,
                                   RandomValues&) const {
  const std::int64_t slots = problem.S;
  std::int64_t step = std::max<std::int64_t>(1, slots * 5 / 8);
  while (std::gcd(step, std::max<std::int64_t>(slots, 1)) != 1) --step;
  const auto slot_at = [&](std::int64_t i) { return i < slots ? (i + 1) * step % slots : -1; };
  // Every count that there may be, in turn.
  const auto accepted_by = [&](std::int64_t row) { return 1 + row % problem.tokens(); };
  const auto committed_by = [&](std::int64_t row) { return (row + problem.R) % (problem.R + 1); };

  const Extents shape = operand_shape(operand_table<RecurrentDecode>(), operand, &problem);
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    const std::int64_t value = operand.name == "accepted"             ? accepted_by(i)
                               : operand.name == "committed.accepted" ? committed_by(i)
                                                                      : slot_at(i);
    values.push_back(static_cast<std::int32_t>(value));
  }
  return Tensor::of(values, shape);
}

}  // namespace attune::ops
