#include "support/backward_runs.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include <attune/backends/cpu.hpp>
#include <attune/core/executor.hpp>

#include "support/reference_kernels.hpp"

namespace attune::test {

using ops::RecurrentAttentionBackward;

const ErasedKernel& simd_backward_kernel(std::string_view name) {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    return made;
  }();
  return *registry.find_kernel(name)->kernel;
}

void run_simd_backward(std::string_view name, const RecurrentTensors& tensors,
                       const Params& overrides) {
  const ErasedKernel& kernel = simd_backward_kernel(name);
  const ProblemRef ref = ProblemRef::of<RecurrentAttentionBackward>(tensors.problem);
  Params params = kernel.params(kernel.erased_heuristic(ref, cpu_device().info()));
  for (const Param& override : overrides) {
    const auto same = std::ranges::find(params, override.name, &Param::name);
    ASSERT_NE(same, params.end()) << override.name;
    same->value = override.value;
  }
  Executor::run_choice(ref, &tensors.backward, {.kernel = &kernel, .config = kernel.parse(params)},
                       cpu_device(), nullptr);
}

void run_reference_backward(const RecurrentTensors& tensors) {
  run_reference<RecurrentAttentionBackward>(tensors.problem, tensors.backward);
}

void expect_like_reference(const RecurrentTensors& simd, const RecurrentTensors& reference) {
  const bool is_f32 = simd.problem.dtype == DType::kF32;
  const auto compare = [](const char* name, const std::optional<TensorView>& actual,
                          const std::optional<TensorView>& expected, double tolerance) {
    ASSERT_EQ(actual.has_value(), expected.has_value());
    if (!actual) return;
    EXPECT_LE(relative_rms_error(to_doubles(*actual), to_doubles(*expected)), tolerance) << name;
  };
  const auto& got = simd.backward;
  const auto& want = reference.backward;
  const double tensor = is_f32 ? 2e-5 : 5e-3;
  const double gate = is_f32 ? 1e-4 : 2e-2;
  compare("dq", got.dq, want.dq, tensor);
  compare("dk", got.dk, want.dk, tensor);
  compare("dv", got.dv, want.dv, tensor);
  compare("dg", got.dg, want.dg, gate);
  compare("dgk", got.dgk, want.dgk, gate);
  compare("dgv", got.dgv, want.dgv, gate);
  compare("dgamma", got.dgamma, want.dgamma, gate);
  compare("dinitial_state", got.dinitial_state, want.dinitial_state, tensor);
}

void expect_like_reference(std::string_view kernel, const ops::RecurrentAttentionProblem& problem,
                           std::uint64_t seed, const Params& overrides) {
  SCOPED_TRACE(str(kernel, " ", problem_text<RecurrentAttentionBackward>(problem), " ",
                   to_text(overrides, ' ')));
  const RecurrentTensors simd(problem, seed), reference(problem, seed);
  run_simd_backward(kernel, simd, overrides);
  run_reference_backward(reference);
  expect_like_reference(simd, reference);
}

}  // namespace attune::test
