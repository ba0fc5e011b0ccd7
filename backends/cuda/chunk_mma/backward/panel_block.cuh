// A block that makes the gradients of a panel of a chunk's keys or values: it walks the panels of the
// other side, each of which adds a product with a tile of the chunk's states.
#pragma once

#include "cuda/chunk_mma/backward/scores.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Its warps; two such blocks share a multiprocessor.
using PanelWarps = Warps<2>;
inline constexpr int kPanelStages = 2;

/// Panels of its shared memory: a tile of a state and tokens, turn by turn.
struct PanelStages {
  std::byte panels[2 * kPanelStages][kPanelBytes];

  __device__ Panel at(int number) const { return panel_at(panels[0], number); }
  __device__ Panel state(int stage) const { return at(2 * stage); }
  __device__ Panel tokens(int stage) const { return at(2 * stage + 1); }
};

/// Its chunk, and its panel of keys or of values.
template <class Memory>
struct PanelBlock {
  const BackwardParams& p;
  const Chunk& chunk;
  Memory& memory;
  int panel;

  __device__ const ChunkScores& scores() const {
    return p.scores[chunk.number * p.heads + chunk.head];
  }
  /// Begins to copy P or R of the chunk's scores to a panel.
  __device__ __forceinline__ void fetch_scores(const std::byte (&from)[kPanelBytes],
                                               int number) const {
    constexpr int kBytes = 16;
    const std::uint32_t to = shared_address(memory.stages.panels[number]);
#pragma unroll
    for (int first = 0; first < kPanelBytes; first += PanelWarps::kThreads * kBytes) {
      const int byte = first + static_cast<int>(threadIdx.x) * kBytes;
      copy_async_16(to + byte, from + byte, true);
    }
    copy_async_commit();
  }
};

/// <S, D> of a thread's elements: of each of its rows for keys, of each of its columns for values, or
/// of all of them.
template <int kCount>
using TileProducts = float[kCount];
static_assert(LoadedPanel<PanelWarps>::kLoads == LoadedPanel<PanelWarps>::kPerLoad);
inline constexpr int kProducts = LoadedPanel<PanelWarps>::kLoads;

/// A tile of a state and a panel of the other side's tokens that is multiplied by it, on their way to a
/// stage; at last the own panel's tokens.
template <bool kOfKeys, bool kValueGates, bool kQuads>
class PanelOperands {
 public:
  using Loaded = LoadedPanel<PanelWarps>;

  __device__ __forceinline__ PanelOperands(const BackwardParams& p, const Chunk& chunk, int panel)
      : p_(p), chunk_(chunk), panel_(panel) {}

  __device__ __forceinline__ void fetch_forward(int other) {
    fetch_tile(p_.forward, chunk_.adds_forward, other);
    fetch_tokens<kQuads>(tokens, p_, others().walked_reads, chunk_, other);
  }
  __device__ __forceinline__ void fetch_back(int other) {
    fetch_tile(p_.back, chunk_.adds_back, other);
    fetch_tokens<kQuads>(tokens, p_, others().walked_writes, chunk_, other);
  }
  /// What the own panel's tokens read with, in the place of a state, and what they write.
  __device__ __forceinline__ void fetch_own() {
    const ChannelSide& own = kOfKeys ? p_.keys : p_.values;
    fetch_tokens<kQuads>(state, p_, own.reads, chunk_, panel_);
    fetch_tokens<kQuads>(tokens, p_, own.writes, chunk_, panel_);
  }
  __device__ __forceinline__ void fetch_own_reads() {
    fetch_tokens<kQuads>(tokens, p_, kOfKeys ? p_.keys.reads : p_.values.reads, chunk_, panel_);
  }
  __device__ __forceinline__ void store(PanelStages& to, int stage) const {
    state.store(to.state(stage), to.panels[0]);
    store_tokens(to, stage);
  }
  __device__ __forceinline__ void store_tokens(PanelStages& to, int stage) const {
    tokens.store(to.tokens(stage), to.panels[0]);
  }
  /// What is left over the chunk of the thread's elements of a tile, by the decays of the other side's
  /// channels: of columns e for keys, of rows for values.
  __device__ __forceinline__ void load_totals(float (&totals)[kProducts], int other) const {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) totals[i] = 1.0F;
    if constexpr (kOfKeys && !kValueGates) return;
    if (!others().gates.exist) return;
    const std::int64_t at = chunk_.number * p_.heads + chunk_.head;
    const float2* const from = others().chunk_totals + at * others().channels;
    const int last = others().channels - 1;
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      const int own = kOfKeys ? Loaded::channel() + i : Loaded::row(i);
      totals[i] = __ldg(from + min(other * kPanelChannels + own, last)).x;
    }
  }
  /// Panels of the other side.
  __device__ int panels() const {
    return (others().channels + kPanelChannels - 1) / kPanelChannels;
  }

  /// Tokens that products are of: those of the chunk, or all where to tell takes registers that there
  /// are none of.
  __device__ int rows() const { return kValueGates ? kTokens : chunk_.place.rows; }

  Loaded state;
  Loaded tokens;

 private:
  __device__ const ChannelSide& others() const { return kOfKeys ? p_.values : p_.keys; }
  __device__ __forceinline__ void fetch_tile(const StateSide& side, bool adds, int other) {
    fetch_state<kValueGates>(state, p_, chunk_, side, adds, kOfKeys ? panel_ : other,
                             kOfKeys ? other : panel_);
  }

  const BackwardParams& p_;
  const Chunk& chunk_;
  const int panel_;
};

/// sums += what a panel of tokens, of which so many exist, reads of a tile of a state, which is of keys
/// by values.
template <bool kOfKeys>
__device__ __forceinline__ void read_tile(Product<PanelWarps>& sums, const PanelStages& stages,
                                          int stage, int rows) {
  if (rows < kTokens && 16 * PanelWarps::row_block() >= rows) return;
  if constexpr (kOfKeys) {
    multiply_rows<PanelWarps>(sums, stages.tokens(stage), stages.state(stage));
  } else {
    multiply_columns<PanelWarps>(sums, stages.tokens(stage), stages.state(stage), 0, kSteps);
  }
}

/// Adds those of S, which the thread has stored in `forward`, and of D, which it has loaded, times what
/// `totals` says is left of them over the chunk.
template <bool kOfKeys, int kCount>
__device__ __forceinline__ void add_products(TileProducts<kCount>& products,
                                             const LoadedPanel<PanelWarps>& back,
                                             const Panel& forward,
                                             const float (&totals)[kProducts]) {
  using Loaded = LoadedPanel<PanelWarps>;
#pragma unroll
  for (int i = 0; i < Loaded::kLoads; ++i) {
    const float2 left = load_pair(forward, Loaded::row(i), Loaded::channel());
    const float2 right = load_pair(forward, Loaded::row(i), Loaded::channel() + 2);
    const float4 d = back.quad(i);
    const float of[kProducts] = {d.x * left.x, d.y * left.y, d.z * right.x, d.w * right.y};
    if constexpr (kOfKeys) {
      products[i % kCount] +=
          fmaf(of[0], totals[0], of[1] * totals[1]) + fmaf(of[2], totals[2], of[3] * totals[3]);
    } else {
#pragma unroll
      for (int e = 0; e < kProducts; ++e) products[e] = fmaf(of[e], totals[i], products[e]);
    }
  }
}

/// What tokens read of S and of D; leaves the own panel's tokens in `loaded`. Stage 1 is still read
/// when it is done.
template <bool kOfKeys, int kCount, class Operands>
__device__ __forceinline__ void read_states(Product<PanelWarps>& reads, Product<PanelWarps>& writes,
                                            TileProducts<kCount>& products, bool wants_products,
                                            Operands& loaded, PanelStages& stages) {
  const int rows = loaded.rows();
  const auto add_panel = [&](int other, auto&& fetch_next) {
    loaded.store(stages, 0);
    __syncthreads();  // S and what reads it are there
    loaded.fetch_back(other);
    read_tile<kOfKeys>(reads, stages, 0, rows);
    if (wants_products) {
      float totals[kProducts];
      loaded.load_totals(totals, other);
      add_products<kOfKeys, kCount>(products, loaded.state, stages.state(0), totals);
    }
    loaded.store(stages, 1);
    __syncthreads();  // D and what is written to it are there, S is done with
    fetch_next();
    read_tile<kOfKeys>(writes, stages, 1, rows);
  };
  const int last = loaded.panels() - 1;
  loaded.fetch_forward(0);
#pragma unroll 1
  for (int other = 0; other < last; ++other) {
    add_panel(other, [&] { loaded.fetch_forward(other + 1); });
  }
  add_panel(last, [&] { loaded.fetch_own(); });
}

/// What tokens read of D alone; leaves what the own panel reads with in `loaded`. Returns a stage that
/// is done with.
template <bool kOfKeys, class Operands>
__device__ __forceinline__ int read_back(Product<PanelWarps>& writes, Operands& loaded,
                                         PanelStages& stages, bool has_states) {
  const int panels = has_states ? loaded.panels() : 0;
  if (panels > 0) {
    loaded.fetch_back(0);
  } else {
    loaded.fetch_own_reads();
  }
#pragma unroll 1
  for (int other = 0; other < panels; ++other) {
    const int stage = other % kPanelStages;
    loaded.store(stages, stage);
    __syncthreads();  // D and what is written to it are there
    if (other + 1 < panels) {
      loaded.fetch_back(other + 1);
    } else {
      loaded.fetch_own_reads();
    }
    read_tile<kOfKeys>(writes, stages, stage, loaded.rows());
  }
  return panels % kPanelStages;
}

/// Leaves P and do of a panel of values without gates in a stage that is done with.
template <class Block, class Operands>
__device__ __forceinline__ void load_values(const Block& block, const Operands& loaded, int stage) {
  block.fetch_scores(block.scores().keys, 2 * stage);
  loaded.store_tokens(block.memory.stages, stage);
  copy_async_wait<0>();
  __syncthreads();  // P and do are there
}
/// Adds what they make of dv, and stores it.
template <class Block>
__device__ __forceinline__ void finish_values(Product<PanelWarps>& dv, const Block& block,
                                              int stage) {
  const BackwardParams& p = block.p;
  const PanelStages& stages = block.memory.stages;
  multiply_transposed<PanelWarps>(dv, stages.state(stage), stages.tokens(stage),
                                  PanelWarps::row_block(), kSteps);
  store_gradients<PanelWarps>(dv, p, block.chunk, p.values.write_gradients, block.panel,
                              p.values.channels, p.values.adds);
}

/// Stores what gradients of the gates that all channels share are made of, of a panel of keys.
template <class Block>
__device__ __forceinline__ void store_gate_parts(const Block& block,
                                                 const GateMemory<PanelWarps>& memory) {
  if (threadIdx.x >= kTokens) return;
  const auto token = static_cast<int>(threadIdx.x);
  GateParts& to = gate_parts_of(block.p, block.chunk)[block.panel];
  to.reads[token] = sum_of_parts(memory.reads, token);
  to.behind[token] = sum_of_parts(memory.writes, token);
  if (token > 0) return;
  float states = 0.0F;
  for (const float part : memory.states) states += part;
  to.states = states;
}

/// The chunk and the panel of a block, of panels of keys and then of values x heads x chunks; both
/// arguments are in shared memory. Returns the panel, or -1 where there is no work.
__device__ __forceinline__ int take_panel(const BackwardParams& p, Chunk& chunk, bool& has_work) {
  const int panels = (p.keys.channels + kPanelChannels - 1) / kPanelChannels +
                     (p.values.channels + kPanelChannels - 1) / kPanelChannels;
  const std::int64_t number = quotient(block_number(), panels);
  if (threadIdx.x == 0) {
    has_work =
        find_chunk(p, number, chunk) && p.scores[chunk.number * p.heads + chunk.head].strong == 0;
  }
  __syncthreads();  // the block's work is known
  return has_work ? static_cast<int>(block_number() - number * panels) : -1;
}

/// Of all chunks.
inline std::int64_t panel_blocks(const BackwardParams& p) {
  return (ceil_div(p.keys.channels, kPanelChannels) + ceil_div(p.values.channels, kPanelChannels)) *
         p.heads * p.chunks;
}

}  // namespace attune::cuda::chunk_mma::backward
