// What conformance does not reach of steps of several tokens on a GPU: indices that only the device
// knows, rounding to the bits of a CPU, graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/ops/recurrent_decode.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using testing::Each;

constexpr std::int64_t kRows = 5, kTokens = 4, kLastTokens = 3, kHeads = 4, kKvHeads = 2;
constexpr std::int64_t kSlots = 24;  // more than all rows keep
constexpr std::int64_t kBeyondI32 = std::int64_t{1} << 40;

/// How a pool of states is stored: as it is, or [V, K].
enum class Storage { kKV, kVK };
enum class Way { kPlain, kKept, kReplay };

/// What a step reads and writes, in the memory of one device.
struct StepTensors {
  Tensor q, k, v, g;
  Tensor last_k, last_v, last_g;  // of the committed tokens
  Tensor pool;                    // [S, H, K, V], or [S, H, V, K]

  StepTensors on(const Device& gpu) const {
    return {upload(q, gpu),      upload(k, gpu),      upload(v, gpu),      upload(g, gpu),
            upload(last_k, gpu), upload(last_v, gpu), upload(last_g, gpu), upload(pool, gpu)};
  }
};

StepTensors random_step(DType tokens, DType pool, Storage storage, std::int64_t keys,
                        std::int64_t values) {
  RandomTensors random(1);
  const Extents states = storage == Storage::kKV ? Extents{kSlots, kHeads, keys, values}
                                                 : Extents{kSlots, kHeads, values, keys};
  return {random({kRows, kTokens, kHeads, keys}, tokens),
          random({kRows, kTokens, kKvHeads, keys}, tokens),
          random({kRows, kTokens, kKvHeads, values}, tokens),
          random.log_decays({kRows, kTokens, kHeads}),
          random({kRows, kLastTokens, kKvHeads, keys}, tokens),
          random({kRows, kLastTokens, kKvHeads, values}, tokens),
          random.log_decays({kRows, kLastTokens, kHeads}),
          random(states, pool)};
}

/// Which states a step is for.
struct StepIndices {
  Way way = Way::kPlain;
  std::vector<std::int64_t> slots = {};  // [B]; with kept states [B, T]
  std::vector<std::int64_t> accepted = std::vector<std::int64_t>(kRows);  // [B]; not of plain steps

  Tensor slots_tensor() const {
    return way == Way::kKept ? Tensor::of(slots, {kRows, kTokens}) : Tensor::of(slots, {kRows});
  }
  Tensor accepted_tensor() const { return Tensor::of(accepted, {kRows}); }
};

ops::RecurrentDecodeOptions options_of(const StepTensors& in, Way way, const Tensor& slots,
                                       const Tensor& accepted, const char* platform) {
  ops::RecurrentDecodeOptions options{
      .g = in.g, .call = {.platform = platform, .context = &heuristic_context()}};
  if (way == Way::kKept) {
    options.kept_slots = slots;
    options.accepted = accepted;
  } else {
    options.slot_indices = slots;
  }
  if (way == Way::kReplay) {
    options.committed =
        ops::CommittedTokens{.k = in.last_k, .v = in.last_v, .g = in.last_g, .accepted = accepted};
  }
  return options;
}

TensorView pool_of(StepTensors& in, Storage storage) {
  const TensorView pool = in.pool;
  return storage == Storage::kKV ? pool : pool.permute({0, 1, 3, 2});
}

using StepCase = std::tuple<Way, DType, Storage, DType>;  // of the pool, of the tokens

class CudaDecodeSteps : public testing::TestWithParam<StepCase> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
  }

  Tensor run_on_gpu(StepTensors& on_gpu, const StepIndices& indices, Storage storage,
                    const StateRounding& rounding = {}) const {
    const Tensor slots = upload(indices.slots_tensor(), *gpu_);
    const Tensor accepted = upload(indices.accepted_tensor(), *gpu_);
    auto options = options_of(on_gpu, indices.way, slots, accepted, "cuda");
    options.state_rounding = rounding;
    return to_host(
        ops::recurrent_decode(on_gpu.q, on_gpu.k, on_gpu.v, pool_of(on_gpu, storage), options),
        *gpu_);
  }
  static Tensor run_on_cpu(StepTensors& in, const StepIndices& indices, Storage storage,
                           const char* platform = "reference", const StateRounding& rounding = {}) {
    const Tensor slots = indices.slots_tensor();
    const Tensor accepted = indices.accepted_tensor();
    auto options = options_of(in, indices.way, slots, accepted, platform);
    options.state_rounding = rounding;
    return ops::recurrent_decode(in.q, in.k, in.v, pool_of(in, storage), options);
  }

  /// Slots that the host's step leaves alone keep their bits; the others are near the host's.
  void expect_slots(const StepTensors& on_gpu, const StepTensors& expected,
                    const Tensor& before) const {
    const Tensor after = to_host(on_gpu.pool, *gpu_);
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      const auto values = [slot](const Tensor& pool) {
        return to_doubles(pool.view().slice(0, slot, slot + 1));
      };
      if (values(expected.pool) == values(before)) {
        EXPECT_EQ(values(after), values(before)) << "slot " << slot;
      } else {
        EXPECT_LE(relative_rms_error(values(after), values(expected.pool)), tolerance())
            << "slot " << slot;
      }
    }
  }

  static double tolerance() { return std::get<1>(GetParam()) == DType::kF32 ? 2e-5 : 5e-3; }
  /// Of outputs, which may be rounded the other way.
  static double output_tolerance() { return std::get<3>(GetParam()) == DType::kF32 ? 2e-5 : 1e-3; }

  const Device* gpu_ = find_gpu();
};

std::string step_name(const testing::TestParamInfo<StepCase>& test) {
  constexpr const char* kWays[] = {"plain", "kept", "replay"};
  const auto [way, dtype, storage, tokens] = test.param;
  return str(kWays[static_cast<int>(way)], "_", to_string(dtype),
             storage == Storage::kKV ? "_kv" : "_vk", "_", to_string(tokens));
}
INSTANTIATE_TEST_SUITE_P(Ways, CudaDecodeSteps,
                         testing::Combine(testing::Values(Way::kPlain, Way::kKept, Way::kReplay),
                                          testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                          testing::Values(Storage::kKV, Storage::kVK),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         step_name);

struct Ranges {
  StepIndices on_a_device, in_order;  // what a device is given, and what that amounts to
  std::vector<std::int64_t> padding;  // rows
};

Ranges ranges_of(Way way) {
  StepIndices wrong, right;
  wrong.way = right.way = way;
  switch (way) {
    case Way::kPlain:
      wrong.slots = {2, kSlots, -7, kBeyondI32, 5};
      right.slots = {2, -1, -1, -1, 5};
      return {wrong, right, {1, 2, 3}};
    case Way::kReplay:
      wrong.slots = right.slots = {2, 7, 0, 11, 5};
      wrong.accepted = {0, kLastTokens, kLastTokens + 1, -4, 1};
      right.accepted = {0, kLastTokens, -1, -1, 1};
      return {wrong, right, {2, 3}};
    case Way::kKept:
      wrong.slots = {8, 9, 10, 11, 0, 1, 2, 3, 23, 22, 21, 20, 4, 5, kSlots, 7, 12, 13, -1, 15};
      right.slots = wrong.slots;
      right.slots[14] = -1;
      wrong.accepted = {2, kTokens + 1, 0, 1, 3};
      right.accepted = {2, -1, -1, 1, 3};
      return {wrong, right, {1, 2, 4}};
  }
  return {};
}

TEST_P(CudaDecodeSteps, IndicesOutOfRangeArePaddingOrKeepNothing) {
  const auto [way, dtype, storage, tokens] = GetParam();
  const Ranges ranges = ranges_of(way);
  for (const auto& [keys, values] : {std::pair{72, 40}, {300, 21}}) {
    SCOPED_TRACE(str("K=", keys, " V=", values));
    StepTensors host = random_step(tokens, dtype, storage, keys, values);
    const Tensor before = copy_of(host.pool);
    StepTensors on_gpu = host.on(*gpu_);
    const Tensor o = run_on_gpu(on_gpu, ranges.on_a_device, storage);
    const Tensor expected = run_on_cpu(host, ranges.in_order, storage);
    EXPECT_LE(relative_rms_error(to_doubles(o), to_doubles(expected)), output_tolerance());
    for (const std::int64_t row : ranges.padding) {
      EXPECT_THAT(to_doubles(o.view().slice(0, row, row + 1)), Each(0.0)) << "row " << row;
    }
    expect_slots(on_gpu, host, before);
  }
}

/// Decays that are far from 1 are not computed as those near it are.
TEST_P(CudaDecodeSteps, DecaysOfAnyStrengthAgreeWithTheOracle) {
  const auto [way, dtype, storage, tokens] = GetParam();
  const Ranges ranges = ranges_of(way);
  constexpr float kReset = -std::numeric_limits<float>::infinity();
  for (const std::vector<float>& gates :
       {std::vector<float>{-6, -1, 0, -3}, {-12, -30, 2, -0.1F, -90}, {-1, 0, kReset, -0.5F, 1}}) {
    SCOPED_TRACE(str("gates ", gates[0], " ", gates[1], " ", gates[2]));
    StepTensors host = random_step(tokens, dtype, storage, 72, 40);
    const Tensor before = copy_of(host.pool);
    std::size_t next = 0;
    for (Tensor* const tensor : {&host.g, &host.last_g}) {
      for (float& gate : tensor->values<float>()) gate = gates[next++ % gates.size()];
    }
    StepTensors on_gpu = host.on(*gpu_);
    const Tensor o = run_on_gpu(on_gpu, ranges.on_a_device, storage);
    const Tensor expected = run_on_cpu(host, ranges.in_order, storage);
    EXPECT_LE(relative_rms_error(to_doubles(o), to_doubles(expected)), output_tolerance());
    expect_slots(on_gpu, host, before);
  }
}

/// Multiples of a 32nd between -1 and 1: sums of a few products of theirs are exact in fp32.
Tensor exact_values(const Extents& shape, int seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    values.push_back(static_cast<float>((i * 37 + seed) % 65 - 32) / 32);
  }
  return Tensor::of(values, shape);
}

TEST_P(CudaDecodeSteps, AreRoundedStochasticallyToTheBitsOfACpu) {
  const auto [way, dtype, storage, tokens] = GetParam();
  if (dtype == DType::kF32) GTEST_SKIP() << "f32 is not rounded";
  if (tokens != DType::kF32) GTEST_SKIP() << "the values below are f32";
  const Ranges ranges = ranges_of(way);
  for (const auto& [keys, values] : {std::pair{72, 48}, {33, 21}}) {
    SCOPED_TRACE(str("K=", keys, " V=", values));
    StepTensors host = random_step(tokens, dtype, storage, keys, values);
    std::ranges::fill(host.g.values<float>(), 0.0F);
    std::ranges::fill(host.last_g.values<float>(), 0.0F);
    int seed = 0;
    for (Tensor* const tensor : {&host.k, &host.v, &host.last_k, &host.last_v}) {
      *tensor = exact_values(tensor->shape(), ++seed);
    }
    std::ranges::fill_n(static_cast<std::uint16_t*>(host.pool.view().data),
                        element_count(host.pool.shape()), std::uint16_t{0});
    StepTensors on_gpu = host.on(*gpu_);
    StepTensors simd = host.on(cpu_device());
    for (const std::uint64_t step : {7, 8}) {
      run_on_gpu(on_gpu, ranges.on_a_device, storage, stochastic(step));
      run_on_cpu(host, ranges.in_order, storage, "reference", stochastic(step));
      run_on_cpu(simd, ranges.in_order, storage, "simd", stochastic(step));
      EXPECT_EQ(to_doubles(to_host(on_gpu.pool, *gpu_)), to_doubles(host.pool));
      EXPECT_EQ(to_doubles(simd.pool), to_doubles(host.pool));
      // What the next step starts from is rounded the same, and short enough to stay exact.
    }
    StepTensors nearest = host.on(*gpu_);
    run_on_gpu(nearest, ranges.on_a_device, storage);
    run_on_gpu(on_gpu, ranges.on_a_device, storage, stochastic(9));
    EXPECT_NE(to_doubles(to_host(on_gpu.pool, *gpu_)), to_doubles(to_host(nearest.pool, *gpu_)));
  }
}

/// A graph of one step reads indices as they are when it is launched.
TEST_P(CudaDecodeSteps, AReplayedGraphReadsTheIndicesAsTheyAreThen) {
  const auto [way, dtype, storage, tokens] = GetParam();
  StepTensors host = random_step(tokens, dtype, storage, 64, 64);
  StepTensors on_gpu = host.on(*gpu_);
  const Ranges ranges = ranges_of(way);
  Tensor slots = upload(ranges.on_a_device.slots_tensor(), *gpu_);
  Tensor accepted = upload(ranges.on_a_device.accepted_tensor(), *gpu_);
  const auto options = options_of(on_gpu, way, slots, accepted, "cuda");
  Tensor o(tokens, {kRows, kTokens, kHeads, 64}, *gpu_);
  const TensorView pool = pool_of(on_gpu, storage);
  const auto plan = ops::plan_recurrent_decode(on_gpu.q, on_gpu.k, on_gpu.v, pool, options);
  const auto args = ops::recurrent_decode_args(o, on_gpu.q, on_gpu.k, on_gpu.v, pool, options);

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  plan.launch(args, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (const std::int64_t turn : {0, 1, 2}) {
    StepIndices now = ranges.in_order;
    for (std::int64_t& count : now.accepted) {
      count = way == Way::kKept ? 1 + (count + turn + kTokens) % kTokens
                                : (count + turn + kLastTokens) % (kLastTokens + 1);
    }
    std::ranges::rotate(now.slots, now.slots.begin() + turn);
    gpu_->copy_to_device(slots.view().data, now.slots.data(), 8 * now.slots.size(), stream);
    gpu_->copy_to_device(accepted.view().data, now.accepted.data(), 8 * kRows, stream);
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    gpu_->synchronize(stream);
    const Tensor expected = run_on_cpu(host, now, storage);
    EXPECT_LE(relative_rms_error(to_doubles(to_host(o, *gpu_)), to_doubles(expected)),
              std::max(tolerance(), output_tolerance()));
    EXPECT_LE(relative_rms_error(to_doubles(to_host(on_gpu.pool, *gpu_)), to_doubles(host.pool)),
              tolerance());
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace attune::test
