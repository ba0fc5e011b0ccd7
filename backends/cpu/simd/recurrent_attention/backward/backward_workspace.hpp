// How the backward kernels divide their workspaces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backward_arguments.hpp"
#include "cpu/simd/arguments.hpp"

namespace attune::cpu::simd {

/// From the start on each thread's scratch memory, of `scratch.size` floats; then the arguments'
/// part, and what a kernel reserves besides.
template <class Scratch>
struct BackwardWorkspace {
  std::int64_t threads = 0;
  Scratch scratch;
  BackwardArgumentSpace arguments;
  std::size_t size = 0;  // bytes
};

template <class Scratch>
BackwardWorkspace<Scratch> backward_workspace(const ops::RecurrentAttentionProblem& problem,
                                              std::int64_t threads, const Scratch& scratch) {
  BackwardWorkspace<Scratch> layout{.threads = threads, .scratch = scratch, .arguments = {}};
  reserve_aligned(layout.size, static_cast<std::size_t>(threads * scratch.size) * sizeof(float));
  layout.arguments = reserve_backward_arguments(problem, layout.size);
  return layout;
}

}  // namespace attune::cpu::simd
