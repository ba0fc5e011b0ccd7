// Runs the reference kernels as the library registers them.
#pragma once

#include <string>

#include <attune/backends/cpu.hpp>
#include <attune/core/registry.hpp>
#include <attune/ops/register.hpp>

namespace attune::test {

inline const Registry& reference_registry() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_reference_kernels(made);
    return made;
  }();
  return registry;
}

template <class Op>
const ErasedKernel& reference_kernel() {
  return *reference_registry().find_kernel(str("reference.", Op::kName))->kernel;
}

template <class Op>
void run_reference(const typename Op::Problem& problem, const typename Op::Args& args) {
  const ErasedKernel& kernel = reference_kernel<Op>();
  const ProblemRef ref = ProblemRef::of<Op>(problem);
  kernel.erased_run(ref, &args, kernel.erased_heuristic(ref, cpu_device().info()), LaunchSite{});
}

}  // namespace attune::test
