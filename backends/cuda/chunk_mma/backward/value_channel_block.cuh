// A chunk of a block of value_channel_gradients.cu: its panels and decays in shared memory, and its tokens on
// their way there.
#pragma once

#include "cuda/chunk_mma/backward/channel_sums.cuh"

namespace attune::cuda::chunk_mma::backward {
inline namespace value_channel_gradients_kernels {

using Own = Warps<kChannelWarps / 4>;

/// What a block has in shared memory behind its panels.
template <int kKeyPanels>
struct BothChannels {
  ChannelMemory<kKeyPanels> keys;
  ChannelMemory<1> values;                      // of the panel at hand
  float products[Own::kWarps][kPanelChannels];  // <S', D'> of its channels, of each warp's rows
};

/// A chunk of a block. Panels are q, k, v, do, S and D as in Panels, and behind them P. R takes the
/// place of D.
template <int kKeyPanels>
struct Block {
  const BackwardParams& p;
  const Chunk& chunk;
  Panels<kKeyPanels, 1> panels;
  BothChannels<kKeyPanels>& channels;

  static constexpr int kPanels = Panels<kKeyPanels, 1>::kPanels + 1;

  __device__ Block(const BackwardParams& params, const Chunk& own_chunk, std::byte* memory)
      : p(params),
        chunk(own_chunk),
        panels{memory},
        channels(*reinterpret_cast<BothChannels<kKeyPanels>*>(memory + kPanels * kPanelBytes)) {}

  __device__ Panel key_scores() const { return panel_at(panels.memory, kPanels - 1); }
  __device__ SideOfChunk<kKeyPanels> side_of_keys() const {
    return {p, chunk, p.keys, channels.keys, panels.memory, 0, kKeyPanels, panels.value_scores(),
            0};
  }
  __device__ SideOfChunk<1> side_of_values(int panel) const {
    return {p,
            chunk,
            p.values,
            channels.values,
            panels.memory,
            2 * kKeyPanels + 1,
            2 * kKeyPanels,
            key_scores(),
            panel};
  }
  /// Over S and D.
  __device__ GateSums<Own, 1>& value_sums() const {
    static_assert(sizeof(GateSums<Own, 1>) <= 2 * kPanelBytes);
    return *reinterpret_cast<GateSums<Own, 1>*>(behind_tokens());
  }
  /// Over the last panels. What a strong chunk has there leaves its tokens alone.
  __device__ KeyGateMemory<Own, kKeyPanels>& key_gates() const {
    using Memory = KeyGateMemory<Own, kKeyPanels>;
    static_assert(sizeof(Memory) - offsetof(Memory, shared) <= 3 * kPanelBytes);
    return *reinterpret_cast<Memory*>(panels.memory + kPanels * kPanelBytes - sizeof(Memory));
  }
  /// Of a strong chunk, over S.
  __device__ ChannelTile<1>& strong_value_gates() const {
    return *reinterpret_cast<ChannelTile<1>*>(behind_tokens());
  }
  /// Scratch while S and D are not there.
  __device__ Log2Sum* scratch() const { return reinterpret_cast<Log2Sum*>(behind_tokens()); }

 private:
  __device__ std::byte* behind_tokens() const {
    return panels.memory + Panels<kKeyPanels, 1>::kTokenPanels * kPanelBytes;
  }
};

/// The decays of the value channels of a panel; returns whether the chunk is strong for them.
template <int kKeyPanels>
__device__ __forceinline__ bool scan_values(const Block<kKeyPanels>& block, int panel) {
  PanelGates<Own, 1> gates(block.p, block.p.values, block.chunk, panel * kPanelChannels);
  return scan_channels<Own>(block.channels.values, block.scratch(), gates);
}

/// Loads q and k, and finds the decays of all channels, at last those of the first panel of values;
/// returns whether the chunk is strong for any of them: else q and k are decayed.
template <bool kQuads, int kKeyPanels>
__device__ __forceinline__ bool load_keys(const Block<kKeyPanels>& block, int value_panels) {
  const BackwardParams& p = block.p;
  ChannelMemory<kKeyPanels>& keys = block.channels.keys;
  PanelGates<Own, kKeyPanels> gates(p, p.keys, block.chunk, 0);
  LoadedTokens<Own, kKeyPanels, 1, kQuads> tokens;
  tokens.fetch_keys(p, block.chunk);
  bool strong = scan_channels<Own>(keys, block.scratch(), gates);
#pragma unroll 1
  for (int panel = value_panels - 1; panel >= 0; --panel) {
    strong = scan_values(block, panel) || strong;
  }
  if (strong) keep_token_decays<Own>(keys, p, p.keys, block.chunk, 0);
  tokens.store_keys(block.panels, [&](LoadedPanel<Own>& q, LoadedPanel<Own>& k, int panel) {
    if (!strong) decay_tokens(q, k, panel, keys.logs);
  });
  return strong;
}

/// Loads a panel of v and do, as they are where the chunk is strong.
template <bool kQuads, int kKeyPanels>
__device__ __forceinline__ void load_values(const Block<kKeyPanels>& block, int panel,
                                            bool strong) {
  const BackwardParams& p = block.p;
  const auto& panels = block.panels;
  LoadedPanel<Own> d_o;
  LoadedPanel<Own> v;
  fetch_tokens<kQuads>(d_o, p, p.values.reads, block.chunk, panel);
  fetch_tokens<kQuads>(v, p, p.values.writes, block.chunk, panel);
  if (!strong) decay_tokens(d_o, v, 0, block.channels.values.logs);
  d_o.store(panels.d_o(0), panels.memory);
  v.store(panels.v(0), panels.memory);
}

}  // namespace value_channel_gradients_kernels
}  // namespace attune::cuda::chunk_mma::backward
