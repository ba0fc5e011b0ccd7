// The states of all chunks: a block walks a tile of 64 x 64 or 128 x 128 of one head's S or D through
// the chunks of a segment, S with time and D against it, and keeps it as it is at every chunk.
#include "cuda/chunk_mma/backward/tile_state.cuh"
#include "cuda/chunk_mma/backward/warpgroup_products.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace state_walk_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kStages = 2;
constexpr int kDecayStages = 3;  // of the chunk at hand, of the one before and the one after it

template <class Own, class Decays>
struct WalkMemory {
  std::byte panels[kStages][2 * Own::kPanels * kPanelBytes];  // of keys, then of values
  TileState<Own> state;
  Decays decays[kDecayStages];
};

/// Chunks on their way to shared memory, written tokens by their keys and their values.
template <class Own, bool kQuads>
class WalkedChunks {
 public:
  __device__ WalkedChunks(const BackwardParams& p, const TileWalk& walk)
      : p_(p),
        walk_(walk),
        keys_(walk.is_back ? p.keys.walked_reads : p.keys.walked_writes),
        values_(walk.is_back ? p.values.walked_reads : p.values.walked_writes) {}

  /// Begins to load the n-th chunk of the walk.
  __device__ __forceinline__ void fetch(int n) {
    const int first = walk_.order(n) * kTokens;
    const int rows = min(walk_.place.rows - first, kTokens);
    fetch(loaded_keys_, keys_, walk_.keys, first, rows, walk_.first_key);
    fetch(loaded_values_, values_, walk_.values, first, rows, walk_.first_value);
  }
  template <class Scan>
  __device__ __forceinline__ void store(std::byte* panels, std::byte* memory,
                                        const typename Scan::Decays& decays) const {
#pragma unroll
    for (int panel = 0; panel < Own::kPanels; ++panel) {
      if (exists(keys_, walk_.first_key, panel)) {
        loaded_keys_[panel].store(panel_at(panels, panel), memory);
      }
      if (!exists(values_, walk_.first_value, panel)) continue;
      loaded_values_[panel].store(panel_at(panels, Own::kPanels + panel), memory, [&](int row) {
        return Scan::factor(p_, walk_.is_back, decays, row);
      });
    }
  }

 private:
  /// Whether there is a panel of the tile's; a tile's first one always is.
  __device__ __forceinline__ static bool exists(const TokenRows& rows, int first, int panel) {
    return panel == 0 || first + panel * kPanelChannels < rows.channels;
  }
  /// Begins to load panels; in the place of one that there is not, the first again.
  __device__ __forceinline__ void fetch(LoadedPanel<Own> (&loaded)[Own::kPanels],
                                        const TokenRows& tokens, const HeadRows& walked,
                                        int first_row, int rows, int first) {
#pragma unroll
    for (int panel = 0; panel < Own::kPanels; ++panel) {
      const int channel = exists(tokens, first, panel) ? panel * kPanelChannels : 0;
      const PlacedRows from = walked.placed(first_row, channel, tokens.exist);
      loaded[panel].template fetch<kQuads>(from, rows, tokens.channels - first - channel);
    }
  }

  const BackwardParams& p_;
  const TileWalk& walk_;
  const TokenRows& keys_;
  const TokenRows& values_;
  LoadedPanel<Own> loaded_keys_[Own::kPanels];
  LoadedPanel<Own> loaded_values_[Own::kPanels];
};

/// total state + added, of an element
template <class Scan, class Decays>
__device__ __forceinline__ float advanced(const Decays& decays, const DecayFactor& total,
                                          int column, float state, float added) {
  if constexpr (Scan::kValueGates) {
    state = decayed_sum(Scan::value_total(decays, column), state, 0.0F);
  }
  return decayed_sum(total, state, added);
}

/// Begins keys^T values of the warp's part of the tile.
template <class Own>
__device__ __forceinline__ void begin_product(Product<Own>& added, const std::byte* panels) {
  const int thread = thread_again();
  begin_transposed(added, panel_at(panels, Own::key_panel(thread)),
                   Own::first_row(thread) % kPanelChannels,
                   panel_at(panels, Own::kPanels + Own::value_panel(thread)),
                   Own::first_tile_column(thread) % kPanelChannels);
}

/// state = total state + added
template <class Own, class Scan>
__device__ __forceinline__ void advance(TileState<Own>& state, const Product<Own>& added,
                                        const typename Scan::Decays& decays) {
  const int thread = thread_again();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = Own::first_row(thread) + 8 * half + thread % kWarpSize / 4;
    const DecayFactor total = Scan::total(decays, row);
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
      float2& pair = state.pair(thread, half, n);
      const float* const sums = &added[n][2 * half];
      const int column = Own::first_tile_column(thread) + 8 * n + thread % 4 * 2;
      pair = {advanced<Scan>(decays, total, column, pair.x, sums[0]),
              advanced<Scan>(decays, total, column + 1, pair.y, sums[1])};
    }
  }
  __syncwarp();  // the warp's part is whole
}

/// Whether there are channels of the head in the part of the tile that the thread's warp has.
template <class Own>
__device__ __forceinline__ bool warp_has_part(const BackwardParams& p, const TileWalk& walk) {
  const auto thread = static_cast<int>(threadIdx.x);
  return walk.first_key + Own::key_panel(thread) * kPanelChannels < p.keys.channels &&
         walk.first_value + Own::value_panel(thread) * kPanelChannels < p.values.channels;
}

/// grid: S and D x tiles x heads x segments.
template <class Own, class Scan, bool kQuads>
__global__ __launch_bounds__(Own::kThreads, 2 / Own::kPanels) void walk_states(
    const __grid_constant__ BackwardParams p) {
  using Decays = typename Scan::Decays;
  extern __shared__ __align__(kWarpgroupAlignment) std::byte shared[];
  auto& memory = *reinterpret_cast<WalkMemory<Own, Decays>*>(shared);
  __shared__ TileWalk walk;  // in registers it would take too many
  __shared__ bool has_work;
  if (threadIdx.x == 0) {
    walk = {};
    has_work = find_walk(p, Own::kChannels, walk);
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  const StateSide& side = walk.is_back ? p.back : p.forward;
  WalkedChunks<Own, kQuads> tokens(p, walk);
  Scan scan(p, walk);

  // What the last chunk makes of the state is for others, or for no one.
  const int steps = max(walk.chunks - (wants_end(p, walk, side) ? 0 : 1), 0);
  const int last = steps - 1;
  const auto fetch_tokens_of = [&](int n) { tokens.fetch(min(n, last)); };
  if (steps > 0) fetch_tokens_of(0);
  if (scan.is_mine() && steps > 0) {
    scan.fetch(0);
    scan.store(memory.decays[0]);
    scan.fetch(min(1, last));
  }
  load_start(memory.state, p, walk, side);
  if (scan.is_mine() && steps > 0) {
    scan.store(memory.decays[1]);
    scan.fetch(min(2, last));
  }
  const bool has_part = warp_has_part<Own>(p, walk);
  const int kept = p.is_cut ? scan.kept() : -1;
  const KeptDecays& kept_decays = scan.kept_decays(side);
  float decay = 1.0F;
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  __syncthreads();  // the first chunk's decays are there
  // Behind the last chunk that one is loaded again: a branch would wait for its loads.
  if (steps > 0) {
    tokens.template store<Scan>(memory.panels[0], shared, memory.decays[0]);
    fetch_tokens_of(1);
  }

  for (int n = 0; n < steps; ++n) {
    const Decays& decays = memory.decays[n % kDecayStages];
    hand_to_products();
    __syncthreads();  // the chunk's panels, and the next one's decays, are there
    Product<Own> added;
    begin_product<Own>(added, memory.panels[n % kStages]);  // a branch would wait for it
    const std::int64_t at = (walk.first_chunk + walk.order(n)) * p.heads + walk.head;
    keep_state(memory.state, p, walk, side.states + at * size);
    if (kept >= 0) {
      kept_decays.of_chunks[at * kept_decays.width + kept] = decay;
      const DecayFactor own = Scan::kept_total(decays);
      decay = fmaf(decay, own.high, decay * own.low);
    }
    if (n < last) {
      tokens.template store<Scan>(memory.panels[(n + 1) % kStages], shared,
                                  memory.decays[(n + 1) % kDecayStages]);
    }
    fetch_tokens_of(n + 2);
    if (scan.is_mine()) {
      scan.store(memory.decays[(n + 2) % kDecayStages]);
      scan.fetch(min(n + 3, last));
    }
    end_products(added);
    if (has_part) advance<Own, Scan>(memory.state, added, decays);
  }
  if (steps < walk.chunks) {
    const std::int64_t at = (walk.first_chunk + walk.order(steps)) * p.heads + walk.head;
    keep_state(memory.state, p, walk, side.states + at * size);
    return;
  }
  if (kept >= 0) {
    const std::int64_t at = walk.segment * p.heads + walk.head;
    kept_decays.of_segments[at * kept_decays.width + kept] = decay;
  }
  store_end(memory.state, p, walk, side);
}

}  // namespace state_walk_kernels

namespace {

template <class Own, class Scan>
void launch_walks(const BackwardParams& p, cudaStream_t stream) {
  const std::int64_t tiles =
      ceil_div(p.keys.channels, Own::kChannels) * ceil_div(p.values.channels, Own::kChannels);
  with_value<false, true>(p.quads, [&]<bool kQuads>() {
    launch<walk_states<Own, Scan, kQuads>>(
        {.grid = grid_of(2 * tiles * p.heads * p.segment_places()),
         .block = Own::kThreads,
         .shared_bytes = sizeof(WalkMemory<Own, typename Scan::Decays>)},
        stream, p);
  });
}

/// Whether a block of the current device can have what a walk of a wide tile takes, as from sm_90 on.
bool has_room_for_wide_tiles() {
  using Decays = ChannelDecays<TileWarps<2>, true>::Decays;
  int device = 0;
  check(cudaGetDevice(&device));
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return sizeof(WalkMemory<TileWarps<2>, Decays>) <= static_cast<std::size_t>(bytes);
}

template <class Own>
void launch_tile_walks(const BackwardParams& p, cudaStream_t stream) {
  if (p.values.gates.exist) {
    launch_walks<Own, ChannelDecays<Own, true>>(p, stream);
  } else if (p.keys.gates.exist) {
    launch_walks<Own, ChannelDecays<Own, false>>(p, stream);
  } else {
    launch_walks<Own, ScalarDecays>(p, stream);
  }
}

}  // namespace

void launch_state_walks(const BackwardParams& p, cudaStream_t stream) {
  const bool are_wide =
      walk_panels(p.keys.channels, p.values.channels, p.heads * p.segment_places()) == 2;
  if (are_wide && has_room_for_wide_tiles()) {
    launch_tile_walks<TileWarps<2>>(p, stream);
  } else {
    launch_tile_walks<TileWarps<1>>(p, stream);
  }
}

}  // namespace attune::cuda::chunk_mma::backward
