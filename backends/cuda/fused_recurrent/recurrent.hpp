// Recurrent attention token by token: every problem there is, and IEEE fp32 for f32 inputs.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_fused_recurrent();
std::unique_ptr<const ErasedKernel> make_fused_recurrent_backward();

}  // namespace attune::cuda
