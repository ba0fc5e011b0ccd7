// The oracle: every op in double, every legal problem, nothing to tune. Plain rather than fast,
// though not slow: it also runs where nothing else supports a problem.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cpu::reference {

std::unique_ptr<const ErasedKernel> make_recurrent_attention();
std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward();
std::unique_ptr<const ErasedKernel> make_recurrent_decode();

}  // namespace attune::cpu::reference
