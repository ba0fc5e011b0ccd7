// The tensors of one backward pass, whichever kernel runs it.
#pragma once

#include "cpu/simd/recurrent_attention/recurrent_forward_params.hpp"

namespace attune::cpu {

struct BackwardTensors {
  RecurrentForwardParams forward;          // but for o and the final state
  TokenTensor<const void*> d_o;            // [B, T, H, V]; zeros when not given
  TokenTensor<void*> dq, dk, dv;           // as q, k, v
  TokenTensor<void*> dg, dgk, dgv;         // fp32; given exactly when the gate is
  StateTensor<const float*> dfinal_state;  // zeros when not given
  StateTensor<float*> dinitial_state;
  double* dgamma = nullptr;  // [N, H] dense: the gradient of each head's log decay
};

}  // namespace attune::cpu
