// The parameters of a step, from an op's tensors.
#pragma once

#include "cuda/decode/decode.hpp"

namespace attune::cuda::decode {

StepParams step_params_of(const ops::RecurrentDecodeProblem& problem,
                          const ops::RecurrentDecodeArgs& args);

}  // namespace attune::cuda::decode
