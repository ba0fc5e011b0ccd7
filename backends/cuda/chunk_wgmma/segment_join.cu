// What stands between the two launches of a walk where summaries are wanted: these, made of what the
// subsegments of sequences add to the state (segment_states.cuh), and the states that come to them.
#include "cuda/chunks/summary_views.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/wgmma_walk/state_memory.cuh"

namespace attune::cuda::chunk_wgmma {
inline namespace segment_join_kernels {  // nvcc names an anonymous one anew in every build

template <int kTileV>
constexpr int kJoinThreads = kTileV / 64 * 128;  // those that hold a state of kTileV value channels

#if ATTUNE_SM90A_CODE

/// What a thread has of a state: a word of four elements, as one of those that left the parts had it
/// in its registers. Blocks (word, value tile, head, sequence).
template <int kTileKOfStates, int kTileVOfStates>
struct StateWord {
  static constexpr int kTileK = kTileKOfStates;
  static constexpr int kTileV = kTileVOfStates;
  static constexpr bool kIsInParts = false;
  static constexpr unsigned kWords = kTileK / 8;

  __device__ explicit StateWord(const WalkParams& p)
      : thread(static_cast<int>(threadIdx.x)), word(static_cast<int>(blockIdx.x % kWords)) {
    const auto tiles = static_cast<unsigned>(value_tiles(p, kTileV));
    const auto heads = static_cast<unsigned>(p.extents.heads);
    const unsigned rest = blockIdx.x / kWords;
    item.tile = static_cast<int>(rest % tiles);
    item.head = static_cast<int>(rest / tiles % heads);
    item.n = static_cast<int>(rest / tiles / heads);
  }
  __device__ float4* part(const WalkParams& p, int number) const {
    return scratch_state<StateWord>(p, item, number, thread / kWarpgroupSize,
                                    thread % kWarpgroupSize) +
           word * kWarpgroupSize;
  }
  /// Calls visit(e, offset) for the elements that exist in one [H, K, V] of the view's strides.
  template <class View, class Visit>
  __device__ void for_each(const WalkParams& p, const View& view, Visit&& visit) const {
    const Lane me;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int k = word * 8 + me.column + e % 2;
      const std::int64_t v =
          item.tile * kTileV + thread / kWarpgroupSize * kStateRows + me.row + e / 2 * 8;
      if (view.data != nullptr && k < p.extents.K && v < p.extents.V) {
        visit(e, item.head * view.head + k * view.k + v * view.v);
      }
    }
  }

  WalkItem item;
  int thread;
  int word;
};

#endif

template <int kTileK, int kTileV>
__global__ __launch_bounds__(kJoinThreads<kTileV>) void join_segments(
    const __grid_constant__ WalkParams p, const __grid_constant__ SummaryViews to) {
#if ATTUNE_SM90A_CODE
  constexpr int kUnroll = 4;  // loads in flight
  const StateWord<kTileK, kTileV> own(p);
  const WalkItem& item = own.item;
  const StateView final = state_of(to.final_state, item.n);
  if (final.data == nullptr) return;
  const int parts = p.segments * p.subsegments;
  const float* const decays = p.scratch.decays + state_index(p, item) * parts;
  float x[4] = {};
  float total = 1.0F;
  float log = 0.0F;
#pragma unroll kUnroll
  for (int i = 0; i < parts; ++i) {
    const float decay = decays[i];
    const float4 added = *own.part(p, i);
    x[0] = decay * x[0] + added.x;
    x[1] = decay * x[1] + added.y;
    x[2] = decay * x[2] + added.z;
    x[3] = decay * x[3] + added.w;
    total *= decay;
    log += logf(decay);
  }
#pragma unroll
  for (float& element : x) element *= to.scale;
  const ConstStateView initial = state_of(to.initial, item.n);
  own.for_each(p, initial, [&](int e, std::int64_t at) { x[e] += total * initial.data[at]; });
  own.for_each(p, final, [&](int e, std::int64_t at) { final.data[at] = x[e]; });

  const StateView sums = state_of(to.key_sums, item.n);
  const int key = own.word * 8 + own.thread;
  if (sums.data == nullptr || item.tile > 0 || own.thread >= 8 || key >= p.extents.K) return;
  sums.data[item.head * sums.head + key * sums.k] = log;
#endif
}

template <int kTileK, int kTileV>
__global__ __launch_bounds__(kJoinThreads<kTileV>) void place_initial_states(
    const __grid_constant__ WalkParams p) {
#if ATTUNE_SM90A_CODE
  const StateWord<kTileK, kTileV> own(p);
  const ConstStateView initial = state_of(p.initial, own.item.n);
  float x[4] = {};
  own.for_each(p, initial, [&](int e, std::int64_t at) { x[e] = initial.data[at]; });
  *own.part(p, p.segments * p.subsegments - 1) = {x[0], x[1], x[2], x[3]};
#endif
}

/// Calls f.operator()<tile_k, tile_v>(grid, block) for words of all states.
template <class F>
void with_words(const ChunkWgmmaConfig& config, const WalkExtents& extents, F&& f) {
  with_instance(config.of_sums(), [&]<class Config>() {
    constexpr ChunkWgmmaConfig kConfig = Config::kValue;
    if constexpr (kConfig == kConfig.of_sums()) {
      const std::int64_t states =
          extents.sequences * extents.heads * ((extents.V + kConfig.tile_v - 1) / kConfig.tile_v);
      f.template operator()<kConfig.tile_k, kConfig.tile_v>(
          dim3(static_cast<unsigned>(states * (kConfig.tile_k / 8))),
          dim3(kJoinThreads<kConfig.tile_v>));
    }
  });
}

}  // namespace segment_join_kernels

void launch_segment_join(const ChunkWgmmaConfig& config, const WalkParams& params,
                         const SummaryViews& to, cudaStream_t stream) {
  with_words(config, params.extents, [&]<int kTileK, int kTileV>(dim3 grid, dim3 block) {
    launch<join_segments<kTileK, kTileV>>({.grid = grid, .block = block}, stream, params, to);
  });
}

void launch_initial_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream) {
  with_words(config, params.extents, [&]<int kTileK, int kTileV>(dim3 grid, dim3 block) {
    launch<place_initial_states<kTileK, kTileV>>({.grid = grid, .block = block}, stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma
