// What simd.decode answers a tuner, and what the op's own cases do not reach.
// tests/backends/conformance_test.cpp holds its results against the oracle.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/backends/cpu.hpp>
#include <attune/core/error.hpp>
#include <attune/core/executor.hpp>
#include <attune/ops/recurrent_decode_op.hpp>
#include <attune/ops/register.hpp>

#include "support/recurrent_tensors.hpp"

namespace attune::test {
namespace {

using ops::RecurrentDecode;
using ops::RecurrentDecodeProblem;
using testing::Each;
using testing::HasSubstr;

const Registry& registry() {
  static const Registry all = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    cpu::register_reference_kernels(made);
    return made;
  }();
  return all;
}

void run_kernel(std::string_view name, const RecurrentDecodeProblem& problem,
                const ops::RecurrentDecodeArgs& args) {
  const ProblemRef ref = ProblemRef::of<RecurrentDecode>(problem);
  const ErasedKernel& kernel = *registry().find_kernel(name)->kernel;
  const ConfigBlob config = kernel.erased_heuristic(ref, cpu_device().info());
  Executor::run_choice(ref, &args, {.kernel = &kernel, .config = config}, cpu_device(), nullptr);
}

/// Four rows, the third of them padding, on six slots whose states are stored [K, V] or [V, K].
struct Step {
  Step(std::int64_t key_dim, std::int64_t value_dim, bool transposed)
      : problem{.B = 4, .H = 4, .Hkv = 2, .K = key_dim, .V = value_dim, .S = 6},
        values(static_cast<std::size_t>(2000 + 6 * 4 * key_dim * value_dim)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i * 37 % 101) / 101 - 0.5F;
    const float* next = values.data();
    args.q = ConstTensorView(next, {4, 4, key_dim});
    args.k = ConstTensorView(next + 300, {4, 2, key_dim});
    args.v = ConstTensorView(next + 500, {4, 2, value_dim});
    args.g = ConstTensorView(next + 700, {4, 4});
    args.slot_indices = ConstTensorView(slots.data(), {4});
    args.o = TensorView(o.data(), {4, 4, value_dim});
    float* const pool = values.data() + 2000;
    args.state = transposed ? TensorView(pool, {6, 4, value_dim, key_dim}).permute({0, 1, 3, 2})
                            : TensorView(pool, {6, 4, key_dim, value_dim});
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  RecurrentDecodeProblem problem;
  std::vector<float> values;
  std::vector<std::int64_t> slots{5, 0, -1, 3};
  std::vector<float> o = std::vector<float>(2000, 7.0F);
  ops::RecurrentDecodeArgs args;
};

class SimdDecodeStates : public testing::TestWithParam<bool> {};

TEST_P(SimdDecodeStates, AreUpdatedInEitherOrderOfTheirChannels) {
  for (const auto& [key_dim, value_dim] : {std::pair{16, 16}, {9, 20}, {1, 70}, {17, 33}}) {
    Step simd(key_dim, value_dim, GetParam()), reference(key_dim, value_dim, GetParam());
    run_kernel("simd.decode", simd.problem, simd.args);
    run_kernel("reference.recurrent_decode", reference.problem, reference.args);
    EXPECT_LE(relative_rms_error(to_doubles(simd.args.o), to_doubles(reference.args.o)), 2e-5);
    EXPECT_LE(relative_rms_error(to_doubles(simd.args.state), to_doubles(reference.args.state)),
              2e-5);
    EXPECT_THAT(to_doubles(simd.args.o.slice(0, 2, 3)), Each(0.0));
    EXPECT_EQ(simd.o.back(), 7.0F) << "written behind o";
  }
}
INSTANTIATE_TEST_SUITE_P(Transposed, SimdDecodeStates, testing::Bool());

TEST(SimdDecode, ResetsAStateExactlyWhateverElseItsGatesSay) {
  Step step(8, 16, false);
  const float reset = -std::numeric_limits<float>::infinity();
  const std::vector<float> g(16, reset), gk(4 * 4 * 8, 3.0F), gv(4 * 4 * 16, -2.0F);
  step.args.g = ConstTensorView(g.data(), {4, 4});
  step.args.gk = ConstTensorView(gk.data(), {4, 4, 8});
  step.args.gv = ConstTensorView(gv.data(), {4, 4, 16});
  run_kernel("simd.decode", step.problem, step.args);
  const auto* const k = static_cast<const float*>(step.args.k.data);
  const auto* const v = static_cast<const float*>(step.args.v.data);
  const auto* const state = static_cast<const float*>(step.args.state.data) + 5 * 4 * 8 * 16;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 16; ++j) EXPECT_EQ(state[i * 16 + j], k[i] * v[j]);
  }
}

TEST(SimdDecode, RefusesASlotOutsideOfThePoolBeforeItWritesAnything) {
  Step step(9, 20, false);
  const std::vector<float> before = step.values;
  step.slots.back() = 6;
  try {
    run_kernel("simd.decode", step.problem, step.args);
    FAIL() << "not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("slot_indices[3] is 6, expected less than 6"));
  }
  EXPECT_EQ(step.values, before);
  EXPECT_THAT(step.o, Each(7.0F));
}

TEST(SimdDecode, StaysOnOneThreadForAFewHeads) {
  const ErasedKernel& kernel = *registry().find_kernel("simd.decode")->kernel;
  const auto threads = [&](std::int64_t rows, std::int64_t dim) {
    const RecurrentDecodeProblem problem{
        .B = rows, .H = 8, .Hkv = 8, .K = dim, .V = dim, .S = rows};
    DeviceInfo info = cpu_device().info();
    info.cores = 8;
    const ProblemRef ref = ProblemRef::of<RecurrentDecode>(problem);
    return *find_param(kernel.params(kernel.erased_heuristic(ref, info)), "threads");
  };
  EXPECT_EQ(threads(1, 32), "1");
  EXPECT_EQ(threads(1, 64), "2");
  EXPECT_EQ(threads(64, 128), "8");
  EXPECT_EQ(threads(0, 128), "1");
}

}  // namespace
}  // namespace attune::test
