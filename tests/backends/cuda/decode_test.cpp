// What conformance does not reach of cuda.decode: slots that only the device knows, pools of more
// than 2^31 elements, thousands of steps, graphs.
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_decode.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/double_recurrence.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using ops::RecurrentDecodeOptions;
using testing::Each;

constexpr double kF32Tolerance = 2e-5;
constexpr double kBf16Tolerance = 5e-3;

ops::CallOptions call_of(const char* platform) {
  return {.platform = platform, .context = &heuristic_context()};
}

double error_of(const ConstTensorView& actual, const ConstTensorView& expected) {
  return relative_rms_error(to_doubles(actual), to_doubles(expected));
}

/// How a pool of states is stored: as it is, or [V, K].
enum class Storage { kKV, kVK };

TensorView stored(const TensorView& square, Storage storage) {
  return storage == Storage::kKV ? square : square.permute({0, 1, 3, 2});
}

/// Inputs of one step on a pool of square states, on the host and on the GPU.
class DecodeStep {
 public:
  DecodeStep(const Device& gpu, std::int64_t rows, std::int64_t slots, DType dtype)
      : gpu_(&gpu),
        shape_{rows, kHeads, kChannels},
        q_(random_(shape_, dtype)),
        k_(random_(shape_, dtype)),
        v_(random_(shape_, dtype)),
        gamma_(random_.log_decays({kHeads})),
        states_(random_({slots, kHeads, kChannels, kChannels})),
        on_gpu_{upload(q_, gpu), upload(k_, gpu), upload(v_, gpu), upload(gamma_, gpu),
                Tensor(dtype, shape_, gpu)} {}

  /// The oracle's step on `states()` as they are now; returns its o.
  Tensor expected_step(const std::vector<std::int64_t>& slots, Storage storage) {
    const Tensor indices = Tensor::of(slots, {static_cast<std::int64_t>(slots.size())});
    RecurrentDecodeOptions options{.g_gamma = gamma_, .call = call_of("reference")};
    options.slot_indices = indices;
    return ops::recurrent_decode(q_, k_, v_, stored(states_, storage), options);
  }

  Plan<ops::RecurrentDecode> plan(const TensorView& pool, const ConstTensorView& slots) {
    return ops::plan_recurrent_decode(on_gpu_[0], on_gpu_[1], on_gpu_[2], pool, options(slots));
  }
  ops::RecurrentDecodeArgs args(const TensorView& pool, const ConstTensorView& slots) {
    return ops::recurrent_decode_args(on_gpu_[4], on_gpu_[0], on_gpu_[1], on_gpu_[2], pool,
                                      options(slots));
  }
  void step(const TensorView& pool, const ConstTensorView& slots) {
    ops::recurrent_decode_into(on_gpu_[4], on_gpu_[0], on_gpu_[1], on_gpu_[2], pool,
                               options(slots));
  }

  Tensor& states() { return states_; }
  Tensor o() { return to_host(on_gpu_[4], *gpu_); }

  static constexpr std::int64_t kHeads = 32, kChannels = 128;

 private:
  RecurrentDecodeOptions options(const ConstTensorView& slots) {
    RecurrentDecodeOptions made{.g_gamma = on_gpu_[3], .call = call_of("cuda")};
    made.slot_indices = slots;
    return made;
  }

  const Device* gpu_;
  RandomTensors random_{1};
  Extents shape_;
  Tensor q_, k_, v_, gamma_, states_;
  std::array<Tensor, 5> on_gpu_;  // q, k, v, gamma, o
};

class CudaDecode : public testing::TestWithParam<Storage> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
  }
  const Device* gpu_ = find_gpu();
};
INSTANTIATE_TEST_SUITE_P(Storages, CudaDecode, testing::Values(Storage::kKV, Storage::kVK));

TEST_P(CudaDecode, SlotsOutsideOfThePoolArePaddingAndTouchNoState) {
  DecodeStep step(*gpu_, 6, 4, DType::kF32);
  // Every second value is an index, as in a column of a table.
  const std::vector<std::int64_t> column{2, 0, -1, 0, 4, 0, std::int64_t{1} << 40, 0, 0, 0, -7, 0};
  const Tensor table = upload(Tensor::of(column, {12}), *gpu_);
  const ConstTensorView slots(table.view().data, DType::kI64, Extents{6}, Extents{2},
                              table.view().device);
  Tensor pool = upload(step.states(), *gpu_);
  const Tensor before = copy_of(step.states());
  step.step(stored(pool, GetParam()), slots);
  const Tensor expected = step.expected_step({2, -1, -1, -1, 0, -1}, GetParam());

  const Tensor o = step.o();
  EXPECT_LE(error_of(o, expected), kF32Tolerance);
  for (const std::int64_t row : {1, 2, 3, 5}) {
    EXPECT_THAT(to_doubles(o.view().slice(0, row, row + 1)), Each(0.0)) << "row " << row;
  }
  const Tensor after = to_host(pool, *gpu_);
  for (const std::int64_t slot : {0, 2}) {
    const auto at = [slot](const Tensor& states) { return states.view().slice(0, slot, slot + 1); };
    EXPECT_LE(error_of(at(after), at(step.states())), kF32Tolerance) << "slot " << slot;
  }
  for (const std::int64_t slot : {1, 3}) {
    EXPECT_EQ(to_doubles(after.view().slice(0, slot, slot + 1)),
              to_doubles(before.view().slice(0, slot, slot + 1)))
        << "slot " << slot;
  }
}

TEST_P(CudaDecode, ReachesTheEndOfAPoolOfMoreThanTwoToThe31Elements) {
  constexpr std::int64_t kStateSize =
      DecodeStep::kHeads * DecodeStep::kChannels * DecodeStep::kChannels;
  constexpr std::int64_t kSlots = (std::int64_t{1} << 31) / kStateSize + 4;
  if (gpu_->info().memory_bytes < 2 * kSlots * kStateSize * 4) GTEST_SKIP() << "needs memory";
  DecodeStep step(*gpu_, 2, 2, DType::kBF16);
  Tensor pool(DType::kF32,
              {kSlots, DecodeStep::kHeads, DecodeStep::kChannels, DecodeStep::kChannels}, *gpu_);
  const auto slot = [&pool](std::int64_t at) { return pool.view().slice(0, at, at + 1); };
  const std::vector<std::int64_t> used{kSlots - 1, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const ConstTensorView from = step.states().view().slice(0, static_cast<std::int64_t>(i),
                                                            static_cast<std::int64_t>(i) + 1);
    gpu_->copy_to_device(slot(used[i]).data, from.data, kStateSize * 4, nullptr);
  }
  const Tensor slots = upload(Tensor::of(used, {2}), *gpu_);
  step.step(stored(pool, GetParam()), slots);
  const Tensor expected = step.expected_step({0, 1}, GetParam());

  EXPECT_LE(error_of(step.o(), expected), kBf16Tolerance);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_LE(error_of(to_host(slot(used[i]), *gpu_), step.states().view().slice(0, row, row + 1)),
              kF32Tolerance);
  }
}

TEST_P(CudaDecode, AReplayedGraphReadsTheSlotsAsTheyAreThen) {
  DecodeStep step(*gpu_, 2, 3, DType::kF32);
  Tensor pool = upload(step.states(), *gpu_);
  Tensor slots(DType::kI64, {2}, *gpu_);
  const TensorView states = stored(pool, GetParam());
  const auto plan = step.plan(states, slots);
  const ops::RecurrentDecodeArgs args = step.args(states, slots);

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  for (int step_of_graph = 0; step_of_graph < 3; ++step_of_graph) plan.launch(args, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (const std::vector<std::int64_t>& now :
       {std::vector<std::int64_t>{0, 2}, {1, -1}, {2, 0}, {5, 1}}) {
    gpu_->copy_to_device(slots.view().data, now.data(), 16, stream);
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    gpu_->synchronize(stream);
    Tensor expected;
    for (int i = 0; i < 3; ++i) {
      expected = step.expected_step({now[0] < 3 ? now[0] : -1, now[1]}, GetParam());
    }
    EXPECT_LE(error_of(step.o(), expected), kF32Tolerance);
    EXPECT_LE(error_of(to_host(pool, *gpu_), step.states()), kF32Tolerance);
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_P(CudaDecode, AThousandStepsAreOneLongRecurrence) {
  constexpr std::int64_t kSteps = 1024, kHeads = 2, kChannels = 64;
  RandomTensors random(3);
  const Extents tokens{kSteps, kHeads, kChannels};
  const Tensor q = random(tokens);
  const Tensor k = random(tokens);
  const Tensor v = random(tokens);
  // As weak as the decay of a long memory: its rounding is what a thousand steps add up.
  const Tensor gk = random(tokens, DType::kF32, -1e-3, 1e-4);
  const DoubleOutputs expected = run({.T = kSteps,
                                      .H = kHeads,
                                      .Hkv = kHeads,
                                      .K = kChannels,
                                      .V = kChannels,
                                      .scale = 1 / std::sqrt(static_cast<double>(kChannels)),
                                      .q = to_doubles(q),
                                      .k = to_doubles(k),
                                      .v = to_doubles(v),
                                      .gk = to_doubles(gk)});

  const std::array<Tensor, 4> in{upload(q, *gpu_), upload(k, *gpu_), upload(v, *gpu_),
                                 upload(gk, *gpu_)};
  Tensor o(DType::kF32, tokens, *gpu_);
  Tensor pool(DType::kF32, {1, kHeads, kChannels, kChannels}, *gpu_);
  gpu_->fill(pool.view().data, std::byte{0}, pool.bytes(), nullptr);
  for (std::int64_t t = 0; t < kSteps; ++t) {
    const auto token = [t](const Tensor& of) { return of.view().slice(0, t, t + 1); };
    ops::recurrent_decode_into(o.view().slice(0, t, t + 1), token(in[0]), token(in[1]),
                               token(in[2]), stored(pool, GetParam()),
                               {.gk = token(in[3]), .call = call_of("cuda")});
  }
  const TensorView state = stored(pool, GetParam());
  EXPECT_LE(relative_rms_error(to_doubles(to_host(o, *gpu_)), expected.o), kF32Tolerance);
  EXPECT_LE(relative_rms_error(to_doubles(to_host(state, *gpu_)), expected.final_state),
            kF32Tolerance);
}

TEST_P(CudaDecode, AGateOfMinusInfinityResetsAndNaNStaysInItsHead) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kChannels = 32;
  RandomTensors random(4);
  const Tensor token = random({1, 2, kChannels});
  Tensor broken = copy_of(token);
  broken.values<float>()[kChannels] = std::numeric_limits<float>::quiet_NaN();  // of head 1
  const Tensor gates = Tensor::of(std::vector<float>{-kInfinity, 0.0F}, {1, 2});
  const Tensor states = random({1, 2, kChannels, kChannels});

  const Tensor q = upload(broken, *gpu_);
  const Tensor kv = upload(token, *gpu_);
  const Tensor g = upload(gates, *gpu_);
  Tensor pool = upload(states, *gpu_);
  Tensor o(DType::kF32, {1, 2, kChannels}, *gpu_);
  ops::recurrent_decode_into(o, q, kv, kv, stored(pool, GetParam()),
                             {.g = g, .call = call_of("cuda")});
  const Tensor state = to_host(stored(pool, GetParam()), *gpu_);
  const std::vector<double> x = to_doubles(token);
  for (std::int64_t i = 0; i < kChannels * kChannels; ++i) {
    const auto row = static_cast<std::size_t>(i / kChannels);
    const auto column = static_cast<std::size_t>(i % kChannels);
    EXPECT_EQ(element_as_double(state, i), static_cast<float>(x[row] * x[column]));
  }
  const std::vector<double> read = to_doubles(to_host(o, *gpu_));
  EXPECT_TRUE(std::isfinite(read[0]));
  EXPECT_TRUE(std::isnan(read[kChannels]));
}

}  // namespace
}  // namespace attune::test
