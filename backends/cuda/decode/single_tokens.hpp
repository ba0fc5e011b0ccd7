// The decoding rows of a mixed batch: packed sequences of one token on a pool of states.
//
// A chunk of one token costs a walk what a whole one does, and the token's state is all that there
// is to move: such rows are the decode kernels' work, in a launch behind the walk of the others
// (walked_sequences()), beside which it may run. Which sequences they are is found on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::decode {

/// Queues what becomes of the sequences of one token. The problem has a pool and is packed.
/// `beside_walk`: the launch before is a walk that writes nothing of theirs, and that lets launches
/// start beside it only when all before it are done.
void launch_single_tokens(const ops::RecurrentAttentionProblem& problem,
                          const ops::RecurrentAttentionArgs& args, bool beside_walk,
                          cudaStream_t stream);

}  // namespace attune::cuda::decode
