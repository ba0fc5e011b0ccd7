// What a panel's block reads of a chunk's states: it walks the panels of the other side, each of which
// adds a product with a tile of S and one with a tile of D, or for values without gates of D alone.
#pragma once

#include "cuda/chunk_mma/backward/panel_block.cuh"
#include "cuda/chunk_mma/backward/warpgroup_products.cuh"

namespace attune::cuda::chunk_mma::backward {

/// What a kernel's instance is for.
template <bool kHasValueGates, bool kTakesQuads, bool kMayBeCut>
struct PanelCase {
  static constexpr bool kValueGates = kHasValueGates;
  static constexpr bool kQuads = kTakesQuads;  // four channels of all rows may be loaded at once
  static constexpr bool kCut = kMayBeCut;      // sequences may have several segments
};

/// Sums of <S, D> that a thread has: of each of its rows for keys, of each of its columns for values.
template <bool kOfKeys>
inline constexpr int kProducts = kOfKeys ? PanelOctets::kCount : PanelOctets::kChannels;

/// The tiles of a chunk's states that a panel needs and the panels of the other side's tokens that are
/// multiplied by them, on their way to stages; at last the own panel's tokens.
template <bool kOfKeys, class Case>
class PanelOperands {
 public:
  using Loaded = LoadedPanel<PanelWarps>;

  template <class Block>
  __device__ __forceinline__ explicit PanelOperands(const Block& block)
      : p_(block.p),
        work_(block.work),
        chunk_(block.chunk),
        stages_(block.memory.stages),
        panel_(block.panel) {}

  /// Begins to copy a tile, where there is one. A group of copies each.
  __device__ __forceinline__ void copy(bool is_back, int other, int stage) {
    if (other < panels()) tile_of(is_back, other).copy(stages_.panels[stage]);
    copy_async_commit();
  }
  /// Begins to load the tokens of the tile behind the next one, where there are registers for that.
  __device__ __forceinline__ void fetch_ahead(bool is_back, int other) {
    if (kFetchesAhead && other < panels()) fetch_tokens_of(is_back, other);
  }
  /// Leaves the tile that was copied last but one, and its tokens, in their stages for the products of
  /// all warps, behind the next barrier.
  __device__ __forceinline__ void hand_over(bool is_back, int other, int stage, int token_stage) {
    if (!kFetchesAhead) fetch_tokens_of(is_back, other);
    auto tile = tile_of(is_back, other);
    tile.fetch_start();
    tokens.store(stages_.tokens(token_stage), stages_.panels[0]);
    copy_async_wait<1>();
    tile.add_start(stages_.panels[stage]);
    hand_to_products();
  }
  /// What the own panel's tokens read with, and what they write.
  __device__ __forceinline__ void fetch_own() {
    const ChannelSide& own = kOfKeys ? p_.keys : p_.values;
    fetch_tokens<Case::kQuads>(own_reads, p_, own.reads, chunk_, panel_);
    fetch_tokens<Case::kQuads>(tokens, p_, own.writes, chunk_, panel_);
  }
  __device__ __forceinline__ void fetch_own_reads() {
    fetch_tokens<Case::kQuads>(tokens, p_, kOfKeys ? p_.keys.reads : p_.values.reads, chunk_,
                               panel_);
  }
  __device__ __forceinline__ void store_own() const {
    own_reads.store(stages_.at(0), stages_.panels[0]);
    tokens.store(stages_.at(1), stages_.panels[0]);
  }
  /// What is left over the chunk of the thread's elements of a tile, by the decays of the other side's
  /// channels: of columns for keys, of rows for values.
  __device__ __forceinline__ void load_totals(float (&totals)[PanelOctets::kChannels],
                                              int other) const {
#pragma unroll
    for (float& total : totals) total = 1.0F;
    if constexpr (kOfKeys && !Case::kValueGates) return;
    if (!others().gates.exist) return;
    const std::int64_t at = chunk_.number * p_.heads + chunk_.head;
    const float2* const from = others().chunk_totals + at * others().channels;
    const int last = others().channels - 1;
#pragma unroll
    for (int i = 0; i < kProducts<!kOfKeys>; ++i) {
      const int own = kOfKeys ? PanelOctets::channel() + i : PanelOctets::row(i);
      totals[i] = __ldg(from + min(other * kPanelChannels + own, last)).x;
    }
  }
  /// Panels of the other side.
  __device__ int panels() const {
    return (others().channels + kPanelChannels - 1) / kPanelChannels;
  }
  __device__ PanelStages& stages() const { return stages_; }

  Loaded own_reads;
  Loaded tokens;

 private:
  // Starts take the registers for that where values have gates.
  static constexpr bool kFetchesAhead = !Case::kValueGates || !Case::kCut;

  __device__ __forceinline__ void fetch_tokens_of(bool is_back, int other) {
    const HeadRows& rows = is_back ? work_.writes : work_.reads;
    const bool exist = is_back || others().walked_reads.exist;
    const int channel = other * kPanelChannels;
    tokens.template fetch<Case::kQuads>(rows.placed(0, channel, exist), chunk_.place.rows,
                                        others().channels - channel);
  }
  __device__ const ChannelSide& others() const { return kOfKeys ? p_.values : p_.keys; }
  __device__ __forceinline__ auto tile_of(bool is_back, int other) const {
    return StateTile<PanelWarps::kThreads, Case::kValueGates, Case::kCut>(
        p_, chunk_, is_back ? work_.back : work_.forward, is_back ? p_.back : p_.forward,
        kOfKeys ? panel_ : other, kOfKeys ? other : panel_);
  }

  const BackwardParams& p_;
  const PanelWork& work_;
  const Chunk& chunk_;
  PanelStages& stages_;
  const int panel_;
};

/// Begins sums += what a panel of tokens reads of a tile of a state, which is of keys by values.
template <bool kOfKeys>
__device__ __forceinline__ void read_tile(Product<PanelWarps>& sums, const PanelStages& stages,
                                          int stage, int token_stage) {
  if constexpr (kOfKeys) {
    begin_rows<PanelWarps>(sums, stages.tokens(token_stage), stages.state(stage));
  } else {
    begin_columns<PanelWarps>(sums, stages.tokens(token_stage), stages.state(stage));
  }
}

/// Adds those of the thread's parts of S and of D, times what `totals` says is left of them over the
/// chunk.
template <bool kOfKeys, int kCount>
__device__ __forceinline__ void add_products(float (&products)[kCount], const std::byte* forward,
                                             const std::byte* back,
                                             const float (&totals)[PanelOctets::kChannels]) {
#pragma unroll
  for (int i = 0; i < PanelOctets::kCount; ++i) {
    const SplitOctet s(forward + PanelOctets::place(i));
    const SplitOctet d(back + PanelOctets::place(i));
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 x = joined(s.pairs[pair]);
      const float2 y = joined(d.pairs[pair]);
      if constexpr (kOfKeys) {
        float& sum = products[i % kCount];
        sum = fmaf(x.x * y.x, totals[2 * pair], sum);
        sum = fmaf(x.y * y.y, totals[2 * pair + 1], sum);
      } else {
        products[2 * pair] = fmaf(x.x * y.x, totals[i], products[2 * pair]);
        products[2 * pair + 1] = fmaf(x.y * y.y, totals[i], products[2 * pair + 1]);
      }
    }
  }
}

/// Begins to copy the first tiles of S and of D.
template <class Operands>
__device__ __forceinline__ void begin_states(Operands& loaded) {
  loaded.copy(false, 0, 0);
  loaded.copy(true, 0, 1);
}
/// What tokens read of S and of D, once begun; leaves the own panel's tokens in `loaded`. All stages are
/// done with when it is done.
template <bool kOfKeys, int kCount, class Operands>
__device__ __forceinline__ void read_states(Product<PanelWarps>& reads, Product<PanelWarps>& writes,
                                            float (&products)[kCount], bool wants_products,
                                            Operands& loaded) {
  constexpr int kStates = PanelStages::kStates;
  PanelStages& stages = loaded.stages();
  const int panels = loaded.panels();
  loaded.fetch_ahead(false, 0);
  loaded.hand_over(false, 0, 0, 0);
  loaded.fetch_ahead(true, 0);
  int stage = 0;  // of S
#pragma unroll 1
  for (int other = 0; other < panels; ++other) {
    const int next = (stage + 1) % kStates;  // of D
    __syncthreads();  // S and what reads it are there, D before it is done with
    read_tile<kOfKeys>(reads, stages, stage, 0);
    loaded.copy(false, other + 1, (stage + 2) % kStates);
    loaded.hand_over(true, other, next, 1);
    loaded.fetch_ahead(false, other + 1);
    float totals[PanelOctets::kChannels];
    if (wants_products) loaded.load_totals(totals, other);
    end_products(reads);
    __syncthreads();  // D and what is written to it are there, S is done with
    read_tile<kOfKeys>(writes, stages, next, 1);
    if (wants_products) {
      add_products<kOfKeys, kCount>(products, stages.panels[stage], stages.panels[next], totals);
    }
    loaded.copy(true, other + 1, stage);  // over what the thread alone still reads
    stage = (stage + 2) % kStates;
    if (other + 1 < panels) loaded.hand_over(false, other + 1, stage, 0);
    loaded.fetch_ahead(true, other + 1);
    end_products(writes);
  }
  loaded.fetch_own();
  __syncthreads();  // all stages are done with
}

/// Begins to copy the first tiles of D.
template <class Operands>
__device__ __forceinline__ void begin_back(Operands& loaded) {
  loaded.copy(true, 0, 0);
  loaded.copy(true, 1, 1);
}
/// What tokens read of D alone, likewise; leaves what the own panel reads with in `loaded`.
template <bool kOfKeys, class Operands>
__device__ __forceinline__ void read_back(Product<PanelWarps>& writes, Operands& loaded) {
  constexpr int kStates = PanelStages::kStates;
  PanelStages& stages = loaded.stages();
  const int panels = loaded.panels();
  loaded.fetch_ahead(true, 0);
  loaded.hand_over(true, 0, 0, 0);
  loaded.fetch_ahead(true, 1);
  int stage = 0;
#pragma unroll 1
  for (int other = 0; other < panels; ++other) {
    const int token_stage = other % PanelStages::kTokenPanels;
    __syncthreads();  // D and what is written to it are there, those before them are done with
    read_tile<kOfKeys>(writes, stages, stage, token_stage);
    loaded.copy(true, other + 2, (stage + 2) % kStates);
    stage = (stage + 1) % kStates;
    if (other + 1 < panels) loaded.hand_over(true, other + 1, stage, 1 - token_stage);
    loaded.fetch_ahead(true, other + 2);
    end_products(writes);
  }
  loaded.fetch_own_reads();
  __syncthreads();  // all stages are done with
}

/// dv of a panel of values without gates, but for what scores add; find_decays() is called while the
/// first states are on their way.
template <class Case, class Block, class FindDecays>
__device__ __forceinline__ void read_values(Product<PanelWarps>& dv, const Block& block,
                                            FindDecays&& find_decays) {
  const BackwardParams& p = block.p;
  PanelStages& stages = block.memory.stages;
  clear(dv);
  PanelOperands<false, Case> loaded(block);
  if (p.has_states) begin_back(loaded);
  find_decays();
  if (p.has_states) {
    read_back<false>(dv, loaded);
  } else {
    loaded.fetch_own_reads();
  }
  block.fetch_scores(block.scores().keys, 0);
  loaded.tokens.store(stages.at(1), stages.panels[0]);
  copy_async_wait<0>();
  __syncthreads();  // P and do are there
}
/// Adds what scores make of dv, and stores it.
template <class Block>
__device__ __forceinline__ void finish_values(Product<PanelWarps>& dv, const Block& block) {
  const BackwardParams& p = block.p;
  const PanelStages& stages = block.memory.stages;
  multiply_transposed<PanelWarps>(dv, stages.at(0), stages.at(1), PanelWarps::row_block(), kSteps);
  store_gradients<PanelWarps>(dv, p, block.chunk, p.values.write_gradients, block.panel,
                              p.values.channels, p.values.adds);
}

}  // namespace attune::cuda::chunk_mma::backward
