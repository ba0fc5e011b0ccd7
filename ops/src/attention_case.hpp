// Cases of recurrent_attention, however their inputs came to be.
#pragma once

#include <memory>

#include <attune/core/case.hpp>

#include "attention_call.hpp"
#include "case_tensors.hpp"

namespace attune::ops {

/// Completes `tensors`, which hold the inputs, with outputs laid out as `rows`, and lowers the
/// call.
std::unique_ptr<Case> forward_case(CaseTensors tensors, const AttentionInputs& inputs,
                                   bool want_final_state, const Placement& rows);
std::unique_ptr<Case> backward_case(CaseTensors tensors, const AttentionInputs& inputs,
                                    const AttentionOutputGradients& gradients,
                                    const Placement& rows);

}  // namespace attune::ops
