// A serving engine's step on a GPU: one recorded call on a pool of states, whose lengths, slots and
// snapshots change between replays, held against platform reference.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "backends/cuda/gpu.hpp"
#include "backends/cuda/recording.hpp"
#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionOptions;

constexpr std::int64_t kSequences = 5, kTokens = 700, kHeads = 4, kKvHeads = 2, kSlots = 80;
constexpr std::int64_t kEvery = 64, kSnapshots = 10;

struct PoolCase {
  const char* config;  // of call
  bool channel_gate;   // gk in place of g
  std::int64_t keys, values;
  DType states;
};
std::ostream& operator<<(std::ostream& out, const PoolCase& c) {
  return out << c.config << " K=" << c.keys << " V=" << c.values << " " << to_string(c.states);
}

class CudaPools : public testing::TestWithParam<PoolCase> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
    const bool is_wgmma = std::string_view(GetParam().config).find("wgmma") != std::string::npos;
    if (!gpu_->info().has(is_wgmma ? "sm_90a" : "sm_80")) GTEST_SKIP() << "needs a newer GPU";
  }

  const Device* gpu_ = find_gpu();
};

INSTANTIATE_TEST_SUITE_P(
    Kernels, CudaPools,
    testing::Values(PoolCase{"kernel=cuda.chunk_wgmma,segments=1", false, 128, 128, DType::kF32},
                    PoolCase{"kernel=cuda.chunk_wgmma,segments=4", false, 64, 96, DType::kF32},
                    PoolCase{"kernel=cuda.chunk_wgmma,segments=4", false, 320, 64, DType::kBF16},
                    PoolCase{"kernel=cuda.chunk_mma,segments=1", false, 80, 72, DType::kF32},
                    PoolCase{"kernel=cuda.chunk_mma,segments=4", false, 128, 128, DType::kF16},
                    PoolCase{"kernel=cuda.gla_wgmma,segments=1", true, 128, 64, DType::kF32},
                    PoolCase{"kernel=cuda.gla_wgmma,segments=4", true, 256, 128, DType::kBF16},
                    PoolCase{"kernel=cuda.gla_mma,segments=1", true, 96, 120, DType::kF32},
                    PoolCase{"kernel=cuda.gla_mma,segments=2", true, 320, 40, DType::kF32},
                    PoolCase{"kernel=cuda.warp_mma,segment=0", true, 24, 32, DType::kF32},
                    PoolCase{"kernel=cuda.warp_mma,segment=64", true, 16, 16, DType::kBF16},
                    PoolCase{"kernel=cuda.chunk_tf32,segments=1", true, 33, 70, DType::kF32},
                    PoolCase{"kernel=cuda.chunk_tf32,segments=8", true, 128, 64, DType::kBF16},
                    PoolCase{"kernel=cuda.fused_recurrent,segments=1", true, 40, 33, DType::kF16},
                    PoolCase{"kernel=cuda.fused_recurrent,segments=16", true, 128, 65,
                             DType::kF32}));

/// The indices of a step, in host memory.
struct Step {
  std::vector<std::int32_t> bounds{0};
  std::vector<std::int32_t> from, to, snapshots;
};

/// Lengths of all kinds with rows behind them; slots that no two sequences share.
Step random_step(std::mt19937_64& random) {
  Step step;
  const std::array<std::int64_t, 6> kinds{0, 1, 3, 64, 130, 333};
  for (std::int64_t n = 0; n < kSequences; ++n) {
    const std::int64_t left = kTokens - step.bounds.back();
    const std::int64_t length = std::min(kinds[random() % kinds.size()], left);
    step.bounds.push_back(step.bounds.back() + static_cast<std::int32_t>(length));
  }
  std::vector<std::int32_t> slots(kSlots);
  std::iota(slots.begin(), slots.end(), 0);
  std::ranges::shuffle(slots, random);
  std::size_t next = 0;
  const auto slot = [&] { return random() % 4 == 0 ? -1 : slots[next++]; };
  for (std::int64_t n = 0; n < kSequences; ++n) {
    step.from.push_back(slot());
    step.to.push_back(random() % 2 == 0 ? step.from.back() : slot());
    for (std::int64_t m = 0; m < kSnapshots; ++m) step.snapshots.push_back(slot());
  }
  return step;
}

void write(const Tensor& to, const Tensor& from, const Device& gpu) {
  gpu.copy_to_device(const_cast<void*>(to.view().data), from.view().data, from.bytes(), nullptr);
  gpu.synchronize(nullptr);
}

/// Rows from token `first` on become NaN.
void poison(Tensor& tensor, std::int64_t first) {
  const std::int64_t row = element_count(tensor.shape()) / kTokens;
  if (tensor.dtype() == DType::kF32) {
    std::ranges::fill(tensor.values<float>().subspan(static_cast<std::size_t>(first * row)),
                      std::numeric_limits<float>::quiet_NaN());
  } else {
    std::ranges::fill(tensor.values<bf16>().subspan(static_cast<std::size_t>(first * row)),
                      bf16(std::numeric_limits<float>::quiet_NaN()));
  }
}

TEST_P(CudaPools, ServeARecordedStepOfAnyLengthsAndSlots) {
  const auto [config, channel_gate, keys, values, state_dtype] = GetParam();
  std::mt19937_64 random(7);
  RandomTensors tensors(8);
  const auto random_tensor = [&](std::int64_t heads, std::int64_t channels) {
    return tensors({1, kTokens, heads, channels}, DType::kBF16);
  };
  const auto indices = [](const std::vector<std::int32_t>& from, const Extents& shape) {
    return Tensor::of(from, shape);
  };
  const Extents gate_shape =
      channel_gate ? Extents{1, kTokens, kHeads, keys} : Extents{1, kTokens, kHeads};
  Tensor q(DType::kBF16, {1, kTokens, kHeads, keys}, *gpu_);
  Tensor k(DType::kBF16, {1, kTokens, kKvHeads, keys}, *gpu_);
  Tensor v(DType::kBF16, {1, kTokens, kKvHeads, values}, *gpu_);
  Tensor o(DType::kBF16, {1, kTokens, kHeads, values}, *gpu_);
  Tensor gate(DType::kF32, gate_shape, *gpu_);
  Tensor pool(state_dtype, {kSlots, kHeads, keys, values}, *gpu_);
  Tensor bounds(DType::kI32, {kSequences + 1}, *gpu_);
  Tensor from(DType::kI32, {kSequences}, *gpu_), to(DType::kI32, {kSequences}, *gpu_);
  Tensor snapshots(DType::kI32, {kSequences, kSnapshots}, *gpu_);
  gpu_->fill(bounds.view().data, std::byte{0}, bounds.bytes(), nullptr);
  gpu_->synchronize(nullptr);

  RecurrentAttentionOptions step_options{
      .cu_seqlens = bounds, .states = pool.view(), .initial_slots = from, .final_slots = to};
  if (state_dtype != DType::kF32) step_options.state_rounding = stochastic(5);
  const bool keeps = std::string_view(config).find("fused_recurrent") == std::string_view::npos;
  if (keeps) {
    step_options.snapshot_every = kEvery;
    step_options.snapshot_slots = snapshots;
  }
  (channel_gate ? step_options.gk : step_options.g) = gate;
  Recording recording;
  step_options.call = {.platform = "cuda",
                       .config = config,
                       .context = &heuristic_context(),
                       .stream = recording.stream()};
  recording.begin();
  ops::recurrent_attention_into({.o = o}, q, k, v, step_options);
  recording.end();

  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const Step step = random_step(random);
    const std::int64_t used = step.bounds.back();
    Tensor host_q = random_tensor(kHeads, keys), host_k = random_tensor(kKvHeads, keys);
    Tensor host_v = random_tensor(kKvHeads, values), host_gate = tensors.log_decays(gate_shape);
    for (Tensor* const tensor : {&host_q, &host_k, &host_v, &host_gate}) poison(*tensor, used);
    const Tensor before = tensors({kSlots, kHeads, keys, values}, state_dtype);
    const Tensor host_bounds = indices(step.bounds, {kSequences + 1});
    const Tensor host_from = indices(step.from, {kSequences});
    const Tensor host_to = indices(step.to, {kSequences});
    const Tensor host_snapshots = indices(step.snapshots, {kSequences, kSnapshots});
    write(q, host_q, *gpu_), write(k, host_k, *gpu_), write(v, host_v, *gpu_);
    write(gate, host_gate, *gpu_), write(pool, before, *gpu_), write(bounds, host_bounds, *gpu_);
    write(from, host_from, *gpu_), write(to, host_to, *gpu_);
    write(snapshots, host_snapshots, *gpu_);
    gpu_->fill(o.view().data, std::byte{0xff}, o.bytes(), nullptr);
    gpu_->synchronize(nullptr);
    recording.replay();

    RecurrentAttentionOptions expected_options = step_options;
    expected_options.call = {.platform = "reference", .context = &heuristic_context()};
    Tensor expected_pool = to_host(before, *heuristic_context().registry().find_device(DeviceId{}));
    expected_options.cu_seqlens = host_bounds;
    expected_options.states = expected_pool.view();
    expected_options.initial_slots = host_from;
    expected_options.final_slots = host_to;
    if (keeps) expected_options.snapshot_slots = host_snapshots;
    (channel_gate ? expected_options.gk : expected_options.g) = host_gate;
    const Tensor expected = ops::recurrent_attention(host_q, host_k, host_v, expected_options).o;
    const Tensor actual = to_host(o, *gpu_);
    if (used > 0) expect_near(tokens(actual, 0, used), tokens(expected, 0, used), kTolerance16);
    for (const double x : values_of(tokens(actual, used, kTokens))) ASSERT_EQ(x, 0);

    const Tensor states = to_host(pool, *gpu_);
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      SCOPED_TRACE(testing::Message() << "slot " << slot);
      const auto one = [&](const Tensor& all) { return all.view().slice(0, slot, slot + 1); };
      if (values_of(one(expected_pool)) == values_of(one(before))) {
        EXPECT_EQ(values_of(one(states)), values_of(one(before)));
      } else {
        expect_near(one(states), one(expected_pool), 2 * kTolerance16);
      }
    }
  }
}

}  // namespace
}  // namespace attune::test
