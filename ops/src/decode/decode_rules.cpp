#include "decode/decode_rules.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "operands/host_indices.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

constexpr int kB = size_at<RecurrentDecode>("B");
constexpr int kH = size_at<RecurrentDecode>("H");
constexpr int kK = size_at<RecurrentDecode>("K");
constexpr int kV = size_at<RecurrentDecode>("V");
constexpr int kS = size_at<RecurrentDecode>("S");
constexpr int kState = operand_at<RecurrentDecode>("state");

}  // namespace

void DecodeRules::check_inputs(OperandCheck& check, const Args& args) const {
  if (!fits_memory({check.size(kB), check.size(kH), check.size(kV)})) {
    check.refuse("v", "shape ", args.v.shape, " makes an o of more than 2^63 - 1 bytes");
  }
  if (!args.slot_indices && check.size(kS) < check.size(kB)) {
    check.refuse(check.name_of(kState), check.size(kS),
                 " slots, expected at least one for each of ", check.size(kB),
                 " rows without slot_indices");
  }
  if (args.slot_indices && check.level() == CheckLevel::kMemory &&
      args.slot_indices->device == DeviceId{}) {
    check_slot_indices(check, "slot_indices", *args.slot_indices, check.size(kS));
  }
  check_layer(check, args.gamma);
  check_scale(check, check.form() == ArgsForm::kCanonical ? args.scale : scale);
}

void DecodeRules::complete(const OperandCheck& check, const Args& args, bool outputs,
                           Problem& problem) const {
  if (args.gamma.source != ConstantDecay::Source::kNone) problem.gates |= kGateGamma;
  problem.tf32 = allow_tf32 && problem.dtype == DType::kF32;
  const bool several_rows = problem.B > 1 || (problem.B == 1 && problem.H > 1);
  const RowsLayout layout = layout_of(operand_table<RecurrentDecode>(), check,
                                      &RowsLayout::add_dense, outputs, several_rows);
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
}

void DecodeRules::lower(const OperandCheck& check, Args& args) const {
  args.scale = scale_or_default(scale, check.size(kK));
}

/// Slots in no order, none of them twice; rows for which there is none are padding.
Tensor DecodeRules::random_indices(const OperandInfo&, const Problem& problem,
                                   RandomValues&) const {
  const std::int64_t slots = problem.S;
  std::int64_t step = std::max<std::int64_t>(1, slots * 5 / 8);
  while (std::gcd(step, std::max<std::int64_t>(slots, 1)) != 1) --step;
  std::vector<std::int32_t> values;
  for (std::int64_t row = 0; row < problem.B; ++row) {
    const std::int64_t slot = row < slots ? (row + 1) * step % slots : -1;
    values.push_back(static_cast<std::int32_t>(slot));
  }
  return Tensor::of(values, {problem.B});
}

}  // namespace attune::ops
