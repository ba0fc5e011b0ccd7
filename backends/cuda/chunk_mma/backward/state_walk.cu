// The states of all chunks: a block walks a tile of 64 x 64 of one head's S or D through the chunks
// of a segment, S with time and D against it, and keeps it as it is at every chunk.
#include "cuda/chunk_mma/backward/tile_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace state_walk_kernels {  // nvcc names an anonymous one anew in every build

using Own = Warps<2>;
constexpr int kResidentBlocks = 2;
constexpr int kStages = 2;
constexpr int kDecayStages = 3;  // of the chunk at hand, of the one before and the one after it

template <class Decays>
struct WalkMemory {
  std::byte panels[2 * kStages * kPanelBytes];
  Decays decays[kDecayStages];
};

/// Calls visit(element, key, value) for those of the lane's elements that exist; key and value are
/// channels of the head.
template <class Visit>
__device__ __forceinline__ void for_each_element(Product<Own>& state, const BackwardParams& p,
                                                 const TileWalk& walk, Visit&& visit) {
  for_each<Own>(state, [&](auto& element, int row, int column) {
    const int key = walk.first_key + row;
    const int value = walk.first_value + column;
    if (key < p.keys.channels && value < p.values.channels) visit(element, key, value);
  });
}

/// Keeps a state [K, state_columns] of the workspace.
__device__ __forceinline__ void keep(const Product<Own>& state, const BackwardParams& p,
                                     const TileWalk& walk, float* to) {
  const auto columns = static_cast<int>(state_columns(p.values.channels));
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = walk.first_key + Own::row(2 * half);
      const int value = walk.first_value + Own::column(n, 0);
      if (key < p.keys.channels && value < columns) {
        *reinterpret_cast<float2*>(to + key * columns + value) = {state[n][2 * half],
                                                                  state[n][2 * half + 1]};
      }
    }
  }
}

/// Chunks on their way to shared memory, written tokens by their keys and their values.
template <bool kQuads>
class WalkedChunks {
 public:
  __device__ WalkedChunks(const BackwardParams& p, const TileWalk& walk)
      : p_(p),
        walk_(walk),
        keys_(walk.is_back ? p.keys.walked_reads : p.keys.walked_writes),
        values_(walk.is_back ? p.values.walked_reads : p.values.walked_writes) {}

  __device__ __forceinline__ void fetch(const Place& chunk) {
    loaded_keys_.template fetch<kQuads>({p_, keys_, chunk, walk_.head, walk_.first_key}, chunk.rows,
                                        keys_.channels - walk_.first_key);
    loaded_values_.template fetch<kQuads>({p_, values_, chunk, walk_.head, walk_.first_value},
                                          chunk.rows, values_.channels - walk_.first_value);
  }
  template <class Scan>
  __device__ __forceinline__ void store(std::byte* memory, int stage,
                                        const typename Scan::Decays& decays) const {
    loaded_keys_.store(panel_at(memory, 2 * stage), memory);
    loaded_values_.store(panel_at(memory, 2 * stage + 1), memory,
                         [&](int row) { return Scan::factor(p_, walk_.is_back, decays, row); });
  }

 private:
  const BackwardParams& p_;
  const TileWalk& walk_;
  const TokenRows& keys_;
  const TokenRows& values_;
  LoadedPanel<Own> loaded_keys_;
  LoadedPanel<Own> loaded_values_;
};

__device__ __forceinline__ void load_start(Product<Own>& state, const BackwardParams& p,
                                           const TileWalk& walk, const StateSide& side) {
  clear(state);
  if (!walk.starts_sequence()) return;
  const ConstStateView from = state_of(side.initial, walk.place.sequence);
  if (from.data == nullptr) return;
  for_each_element(state, p, walk, [&](float& element, int key, int value) {
    element = from.data[walk.head * from.head + key * from.k + value * from.v];
  });
}

/// Where the walk ends: the segment's state for the others, or the sequence's for the caller.
__device__ __forceinline__ void store_end(Product<Own>& state, const BackwardParams& p,
                                          const TileWalk& walk, const StateSide& side) {
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  if (p.is_cut) {
    const std::int64_t at = walk.segment * p.heads + walk.head;
    keep(state, p, walk, side.segment_states + at * size);
    return;
  }
  const StateView to = state_of(side.final, walk.place.sequence);
  if (to.data == nullptr) return;
  for_each_element(state, p, walk, [&](float element, int key, int value) {
    to.data[walk.head * to.head + key * to.k + value * to.v] = element;
  });
}

/// state = total state + keys^T values
template <class Scan>
__device__ __forceinline__ void advance(Product<Own>& state, const std::byte* memory, int stage,
                                        const typename Scan::Decays& decays) {
  Product<Own> added;
  clear(added);
  multiply_transposed<Own>(added, panel_at(memory, 2 * stage), panel_at(memory, 2 * stage + 1), 0,
                           kSteps);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const DecayFactor total = Scan::total(decays, Own::row(2 * half));
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        if constexpr (Scan::kValueGates) {
          const DecayFactor of_value = Scan::value_total(decays, Own::column(n, e));
          state[n][e] = decayed_sum(of_value, state[n][e], 0.0F);
        }
        state[n][e] = decayed_sum(total, state[n][e], added[n][e]);
      }
    }
  }
}

/// grid: S and D x tiles x heads x segments.
template <class Scan, bool kQuads>
__global__ __launch_bounds__(Own::kThreads, kResidentBlocks) void walk_states(
    const __grid_constant__ BackwardParams p) {
  using Decays = typename Scan::Decays;
  extern __shared__ __align__(128) std::byte shared[];
  auto& memory = *reinterpret_cast<WalkMemory<Decays>*>(shared);
  __shared__ TileWalk walk;  // in registers it would take too many
  __shared__ bool has_work;
  if (threadIdx.x == 0) {
    walk = {};
    has_work = find_walk(p, walk);
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  const StateSide& side = walk.is_back ? p.back : p.forward;
  WalkedChunks<kQuads> tokens(p, walk);
  Scan scan(p, walk);

  const int last = walk.chunks - 1;
  if (walk.chunks > 0) tokens.fetch(walk.chunk(0));
  if (scan.is_mine() && walk.chunks > 0) {
    scan.fetch(0);
    scan.store(memory.decays[0]);
    scan.fetch(min(1, last));
  }
  Product<Own> state;
  load_start(state, p, walk, side);
  const int kept = p.is_cut ? scan.kept() : -1;
  const KeptDecays& kept_decays = scan.kept_decays(side);
  float decay = 1.0F;
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  __syncthreads();  // the first chunk's decays are there

  for (int n = 0; n < walk.chunks; ++n) {
    const Decays& decays = memory.decays[n % kDecayStages];
    tokens.template store<Scan>(memory.panels, n % kStages, decays);
    // Behind the last chunk that one is loaded again: a branch would wait for its loads.
    tokens.fetch(walk.chunk(min(n + 1, last)));
    if (scan.is_mine()) {
      scan.store(memory.decays[(n + 1) % kDecayStages]);
      scan.fetch(min(n + 2, last));
    }
    const std::int64_t at = (walk.first_chunk + walk.order(n)) * p.heads + walk.head;
    keep(state, p, walk, side.states + at * size);
    if (kept >= 0) {
      kept_decays.of_chunks[at * kept_decays.width + kept] = decay;
      const DecayFactor own = Scan::kept_total(decays);
      decay = fmaf(decay, own.high, decay * own.low);
    }
    __syncthreads();  // the chunk's panels, and the next one's decays, are there
    advance<Scan>(state, memory.panels, n % kStages, decays);
  }
  if (kept >= 0) {
    const std::int64_t at = walk.segment * p.heads + walk.head;
    kept_decays.of_segments[at * kept_decays.width + kept] = decay;
  }
  store_end(state, p, walk, side);
}

}  // namespace state_walk_kernels

namespace {

template <class Scan>
void launch_walks(const BackwardParams& p, cudaStream_t stream) {
  const std::int64_t tiles = panels_of(p.keys.channels) * panels_of(p.values.channels);
  with_value<false, true>(p.quads, [&]<bool kQuads>() {
    launch<walk_states<Scan, kQuads>>({.grid = grid_of(2 * tiles * p.heads * p.segments),
                                       .block = Own::kThreads,
                                       .shared_bytes = sizeof(WalkMemory<typename Scan::Decays>)},
                                      stream, p);
  });
}

}  // namespace

void launch_state_walks(const BackwardParams& p, cudaStream_t stream) {
  if (p.values.gates.exist) {
    launch_walks<ChannelDecays<true>>(p, stream);
  } else if (p.keys.gates.exist) {
    launch_walks<ChannelDecays<false>>(p, stream);
  } else {
    launch_walks<ScalarDecays>(p, stream);
  }
}

}  // namespace attune::cuda::chunk_mma::backward
