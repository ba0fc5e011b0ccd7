// A thread an element of a target's states, neighbours along V. It takes its element through the
// target's summaries in their order, with the loads of several in flight: the sum of each does not
// wait for the state before it.
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/state_fold/launch.hpp"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda::state_fold {

constexpr int kThreads = 256;
constexpr int kBatch = 4;  // summaries whose loads are in flight

/// Index `at`, at least 0 and less than `end`.
__device__ __forceinline__ std::int64_t clamped_index(const IndicesView& indices, std::int64_t at,
                                                      std::int64_t end) {
  const std::int64_t index = index_at(indices.data, indices.is_i64, at * indices.stride);
  return min(max(index, std::int64_t{0}), end - 1);
}

/// One element of a head's state.
struct Element {
  std::int64_t head = 0;
  std::int64_t key = 0;
  std::int64_t value = 0;

  template <class View>
  __device__ std::int64_t offset(const View& view) const {
    return head * view.head + key * view.k + value * view.v;
  }
  /// Of state n; 0 where there are none.
  __device__ float load(const ConstStateView& states, std::int64_t n) const {
    return states.data == nullptr ? 0.0F : states.data[n * states.sequence + offset(states)];
  }
};

/// A state of which a decay leaves nothing is gone, even an infinite one.
__device__ __forceinline__ float folded_element(float log, float state, float added) {
  const DecayFactor factor = decay_factor(log);
  return factor.high == 0.0F ? added : decayed_sum(factor, state, added);
}

__global__ __launch_bounds__(kThreads) void fold_states(const __grid_constant__ StateFoldParams p) {
  const std::int64_t elements = p.heads * p.keys * p.values;
  const std::int64_t blocks = ceil_div(elements, kThreads);  // of a target
  const std::int64_t target = block_number() / blocks;
  const std::int64_t index = block_number() % blocks * kThreads + threadIdx.x;
  if (target >= p.targets || index >= elements) return;
  const Element e{index / p.values / p.keys, index / p.values % p.keys, index % p.values};

  const std::int64_t first = clamped_index(p.offsets, target, p.folds + 1);
  const std::int64_t last = clamped_index(p.offsets, target + 1, p.folds + 1);
  const std::int64_t end = p.summaries > 0 ? last : first;
  float state = e.load(state_of(p.initial, target), 0);
  for (std::int64_t batch = first; batch < end; batch += kBatch) {
    float added[kBatch];
    float logs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::int64_t m = clamped_index(p.order, min(batch + i, end - 1), p.summaries);
      added[i] = e.load(p.added, m);
      logs[i] = e.load(p.key_logs, m) + e.load(p.value_logs, m);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (batch + i < end) state = folded_element(logs[i], state, added[i]);
    }
  }
  const StateView to = state_of(p.folded, target);
  to.data[e.offset(to)] = state;
}

void launch_state_fold(const StateFoldParams& p, cudaStream_t stream) {
  const std::int64_t blocks = ceil_div(p.heads * p.keys * p.values, kThreads);
  launch<fold_states>({.grid = grid_of(p.targets * blocks), .block = kThreads}, stream, p);
}

}  // namespace attune::cuda::state_fold
