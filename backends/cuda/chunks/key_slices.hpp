// Problems with more key channels than a kernel's blocks have room for, slice by slice.
//
// Outputs are sums over key channels, o_t[j] = scale sum_i q_t[i] S_t[i,j], and a row S[i,:] of the
// state depends on no other: runs that each take some of the key channels give the whole. The first
// one writes the outputs, those of the others are added to them, in their own type.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/chunks/padded_rows.hpp"

namespace attune::cuda {

/// More slices round 16-bit outputs more often: those of four are 1.8 roundings off in the mean, of two 1.4.
inline constexpr std::int64_t kMostSlicedKeys = 1024;

/// What there is of the arguments for key channels `first` to `first` + `count` - 1.
inline ops::RecurrentAttentionArgs key_slice(const ops::RecurrentAttentionArgs& args,
                                             std::int64_t first, std::int64_t count) {
  constexpr int kChannels = 3;  // dimension of q, k and gk
  constexpr int kRows = 2;      // of the states
  ops::RecurrentAttentionArgs slice = args;
  slice.q = args.q.slice(kChannels, first, first + count);
  slice.k = args.k.slice(kChannels, first, first + count);
  if (args.gk) slice.gk = args.gk->slice(kChannels, first, first + count);
  if (args.initial_state)
    slice.initial_state = args.initial_state->slice(kRows, first, first + count);
  if (args.final_state) slice.final_state = args.final_state->slice(kRows, first, first + count);
  if (args.states) slice.states = args.states->slice(kRows, first, first + count);
  return slice;
}

/// Bytes of the outputs that are added, where slices have up to `most` key channels.
inline std::size_t key_slices_bytes(const ops::RecurrentAttentionProblem& problem,
                                    std::int64_t most) {
  return problem.K > most ? PaddedOutput::bytes(problem) : 0;
}

/// Calls run(problem, args, workspace, first) for slices of up to `most` key channels, from `first` on.
/// All have the same workspace.
template <class Run>
void run_key_slices(const ops::RecurrentAttentionProblem& problem,
                    const ops::RecurrentAttentionArgs& args, std::int64_t most,
                    std::span<std::byte> workspace, cudaStream_t stream, Run&& run) {
  if (problem.K <= most) return run(problem, args, workspace, std::int64_t{0});
  const std::span<std::byte> rest = workspace.subspan(key_slices_bytes(problem, most));
  for (std::int64_t first = 0; first < problem.K; first += most) {
    ops::RecurrentAttentionProblem slice = problem;
    slice.K = std::min(most, problem.K - first);
    ops::RecurrentAttentionArgs own = key_slice(args, first, slice.K);
    if (first == 0) {
      run(slice, own, rest, first);
      continue;
    }
    AddedOutputs added(workspace.data());
    added.redirect(own.o);
    run(slice, own, rest, first);
    added.add(problem.dtype, stream);
  }
}

}  // namespace attune::cuda
