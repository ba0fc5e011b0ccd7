#include "support/packed_batches.hpp"

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/executor.hpp>
#include <attune/core/operand_case.hpp>
#include <attune/core/params.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using ops::RecurrentAttentionProblem;

constexpr std::byte kPoison{0x4b};

constexpr const char* kBatches[] = {
    "B=3 T=48 H=2 K=32 V=32",      // a chunk each, fewer tokens than are worth a cut
    "B=5 T=300 H=2 K=64 V=64",     // the last chunk is short
    "B=2 T=1024 H=1 K=64 V=64",    // in many segments
    "B=4 T=1024 H=4 K=64 V=128",   // in a few
    "B=2 T=1000 H=2 K=136 V=40"};  // wide, and no whole segments
/// Of which blocks have two tiles a side, and add up parts of gradients; too much for a CPU's tests.
constexpr const char* kLargeBatch = "B=4 T=1024 H=4 K=256 V=256";
constexpr const char* kGates[] = {"none", "gamma", "g", "gk", "g+gv"};

void take_data(ConstTensorView& to, const ConstTensorView& from) { to.data = from.data; }
void take_data(std::optional<ConstTensorView>& to, const std::optional<ConstTensorView>& from) {
  if (to) to->data = from->data;
}

/// `packed` then reads what `batch` does: tokens of all sequences lie one behind the other in both.
template <class Args>
void read_the_same(Args& packed, const Args& batch) {
  packed.gamma = batch.gamma;
  take_data(packed.q, batch.q), take_data(packed.k, batch.k), take_data(packed.v, batch.v);
  take_data(packed.g, batch.g), take_data(packed.gk, batch.gk), take_data(packed.gv, batch.gv);
  take_data(packed.initial_state, batch.initial_state);
  if constexpr (requires { packed.d_o; }) {
    take_data(packed.d_o, batch.d_o), take_data(packed.dfinal_state, batch.dfinal_state);
  }
}

Tensor even_bounds(const RecurrentAttentionProblem& batch, const Device& device) {
  std::vector<std::int64_t> bounds;
  for (std::int64_t n = 0; n <= batch.B; ++n) bounds.push_back(n * batch.T);
  Tensor on_device(DType::kI64, {batch.B + 1}, device);
  device.copy_to_device(on_device.view().data, bounds.data(), on_device.bytes(), nullptr);
  device.synchronize(nullptr);
  return on_device;
}

/// How far an output may be from the batch's; nothing: it is the same bits.
std::optional<double> tolerance_of(const std::string& output, DType dtype, PackedCuts cuts) {
  constexpr double kOtherOrder = 1e-5;
  if (cuts == PackedCuts::kAsBatch) {
    return output == "dg_gamma" ? std::optional(kOtherOrder) : std::nullopt;
  }
  const Tolerances tolerances = tolerances_of(dtype, false);
  return output.starts_with("dg") ? tolerances.gate_gradient : tolerances.tensor;
}

void expect_same(TensorMap actual, TensorMap expected, DType dtype, PackedCuts cuts) {
  std::erase_if(expected, [&](const auto& output) {
    const auto& [name, tensor] = output;
    const std::optional<double> tolerance = tolerance_of(name, dtype, cuts);
    if (!tolerance) return false;
    const auto found = actual.extract(name);
    EXPECT_LE(relative_rms_error(to_doubles(found.mapped().view()), to_doubles(tensor.view())),
              *tolerance)
        << name;
    return true;
  });
  EXPECT_EQ(first_difference(actual, expected), "");
}

template <class Op>
void expect_batch(const KernelOnDevice& on, const RecurrentAttentionProblem& problem,
                  PackedCuts cuts) {
  using Args = typename Op::Args;
  RecurrentAttentionProblem packed = problem;
  packed.B = 1;
  packed.T = problem.B * problem.T;
  packed.N = problem.B;
  const auto of_batch = on.op->make_case(ProblemRef::of<Op>(problem), *on.device, 1);
  const auto of_packed = on.op->make_case(ProblemRef::of<Op>(packed), *on.device, 1);
  const Tensor bounds = even_bounds(problem, *on.device);
  Args args = *static_cast<const Args*>(of_packed->args());
  read_the_same(args, *static_cast<const Args*>(of_batch->args()));
  args.cu_seqlens = bounds.view();
  const auto run = [&](Case& inputs, const void* with) {
    const ConfigBlob config = on.kernel->erased_heuristic(inputs.problem(), on.info());
    Executor::run_choice(inputs.problem(), with, {.kernel = on.kernel, .config = config},
                         *on.device, nullptr);
    on.device->synchronize(nullptr);
    return copy_outputs(inputs, *on.device);
  };
  of_packed->reset(kPoison);
  of_batch->reset(kPoison);
  expect_same(run(*of_packed, &args), run(*of_batch, of_batch->args()), problem.dtype, cuts);
}

template <class Op>
int expect_of(const KernelOnDevice& on, PackedCuts cuts) {
  int count = 0;
  for (const char* const dtype : {"f32", "bf16"}) {
    for (const char* const gates : kGates) {
      std::vector<const char*> batches(std::begin(kBatches), std::end(kBatches));
      if (on.info().id.backend == "gpu") batches.push_back(kLargeBatch);
      for (const char* const batch : batches) {
        const std::string text = str(batch, " gate=", gates, " dtype=", dtype, " h0=yes ht=yes");
        const AnyProblem problem = on.op->parse(parse_params(text, ' '));
        if (!on.kernel->erased_supports(problem, on.info())) continue;
        SCOPED_TRACE(str(on, ": ", text));
        expect_batch<Op>(on, ProblemRef(problem).as<Op>(), cuts);
        ++count;
      }
    }
  }
  return count;
}

}  // namespace

int expect_packed_sequences_are_their_batch(const KernelOnDevice& on, PackedCuts cuts) {
  return on.op->name == RecurrentAttention::kName ? expect_of<RecurrentAttention>(on, cuts)
                                                  : expect_of<RecurrentAttentionBackward>(on, cuts);
}

}  // namespace attune::test
