#include "cuda/chunks/key_slices.hpp"

namespace attune::cuda {

ops::RecurrentAttentionArgs key_slice(const ops::RecurrentAttentionArgs& args, std::int64_t first,
                                      std::int64_t count) {
  constexpr int kChannels = 3;  // dimension of q, k and gk
  constexpr int kRows = 2;      // of the states
  ops::RecurrentAttentionArgs slice = args;
  slice.q = args.q.slice(kChannels, first, first + count);
  slice.k = args.k.slice(kChannels, first, first + count);
  if (args.gk) slice.gk = args.gk->slice(kChannels, first, first + count);
  if (args.initial_state)
    slice.initial_state = args.initial_state->slice(kRows, first, first + count);
  if (args.final_state) slice.final_state = args.final_state->slice(kRows, first, first + count);
  return slice;
}

std::size_t key_slices_bytes(const ops::RecurrentAttentionProblem& problem, std::int64_t most) {
  return problem.K > most ? PaddedOutput::bytes(problem) : 0;
}

}  // namespace attune::cuda
