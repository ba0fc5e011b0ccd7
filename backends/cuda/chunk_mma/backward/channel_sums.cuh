// What a chunk's block makes of the sums over its tokens, for the operands of channel_scan.cuh: the
// gradients of one side's reads and writes, and what those of its gates are made of.
#pragma once

#include "cuda/chunk_mma/backward/channel_gates.cuh"

namespace attune::cuda::chunk_mma::backward {

/// to += sign a b, element by element, b a panel.
template <class Own>
__device__ __forceinline__ void add_products(Product<Own>& to, float sign, const Product<Own>& a,
                                             const Panel& b) {
  for_each_pair<Own>([&](int n, int half, int row, int column) {
    const float2 pair = load_pair(b, row, column);
    to[n][2 * half] = fmaf(sign * a[n][2 * half], pair.x, to[n][2 * half]);
    to[n][2 * half + 1] = fmaf(sign * a[n][2 * half + 1], pair.y, to[n][2 * half + 1]);
  });
}

/// to += the sums over channels.
template <class Own>
__device__ __forceinline__ void add_rows(float (&to)[2], const Product<Own>& terms) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0F;
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
      sum += terms[n][2 * half] + terms[n][2 * half + 1];
    }
    to[half] += sum_of_row(sum);
  }
}

/// Stores a panel of a tile.
template <class Own, int kPanels>
__device__ __forceinline__ void store_tile(ChannelTile<kPanels>& to, const Product<Own>& from,
                                           int panel) {
  for_each_pair<Own>([&](int n, int half, int row, int column) {
    *reinterpret_cast<float2*>(&to.at(row, panel * kPanelChannels + column)) = {
        from[n][2 * half], from[n][2 * half + 1]};
  });
}

/// Takes what a token has of itself out of scores: no gate has part in it.
template <class Own>
__device__ __forceinline__ void take_diagonal(Product<Own>& scores, float (&diagonal)[kTokens]) {
  for_each<Own>(scores, [&](float& score, int row, int column) {
    if (row != column) return;
    diagonal[row] = score;
    score = 0.0F;
  });
}

/// What reads and what is written times the decays from and to the chunk's middle.
template <class Own, int kPanels>
__device__ __forceinline__ void decay_tokens(LoadedPanel<Own>& reads, LoadedPanel<Own>& writes,
                                             int panel, const ChannelTile<kPanels>& logs) {
  const int channel = panel * kPanelChannels + LoadedPanel<Own>::channel();
  const auto factors = [&](float sign) {
    return [&logs, channel, sign](int row) {
      const float4 x = *reinterpret_cast<const float4*>(&logs.at(row, channel));
      return float4{exp2_approx(sign * x.x), exp2_approx(sign * x.y), exp2_approx(sign * x.z),
                    exp2_approx(sign * x.w)};
    };
  };
  reads.multiply(factors(1.0F));
  writes.multiply(factors(-1.0F));
}

/// A side of a chunk: of keys, or of values.
template <int kPanels>
struct SideOfChunk {
  const BackwardParams& p;
  const Chunk& chunk;
  const ChannelSide& side;
  ChannelMemory<kPanels>& channels;
  const std::byte* memory;
  int first_read;   // panel of what reads: q, do
  int first_write;  // and of what is written: k, v
  Panel scores;     // R for keys, P for values
  int first_panel;  // of the side's: those before it are others' work

  __device__ Panel reads(int panel) const { return panel_at(memory, first_read + panel); }
  __device__ Panel writes(int panel) const { return panel_at(memory, first_write + panel); }
};

/// Makes a panel of the states S' and D' by the decays of keys, and adds <S', D'> to their products.
template <class Own, int kKeyPanels>
__device__ __forceinline__ void decay_rows(LoadedPanel<Own>& forward, LoadedPanel<Own>& back,
                                           ChannelMemory<kKeyPanels>& channels, int key_panel) {
  const int first = key_panel * kPanelChannels;
  forward.scale([&](int row) { return channels.to_middle[first + row]; });
  back.scale([&](int row) { return channels.to_end(first + row); });
  forward.products_with(back, [&](int row, float sum) {
    const float all = sum_of_loads(sum);
    if (LoadedPanel<Own>::channel() == 0) channels.products[first + row] += all;
  });
}

/// Adds what a token has of itself, and multiplies by 2^(sign x).
template <class Own, int kPanels>
__device__ __forceinline__ void finish(Product<Own>& sums, const Panel& rows,
                                       const ChannelMemory<kPanels>& channels, int panel,
                                       float sign) {
  for_each_pair<Own>([&](int n, int half, int row, int column) {
    const float2 pair = load_pair(rows, row, column);
    const float own = channels.diagonal[row];
    const float2 x =
        *reinterpret_cast<const float2*>(&channels.logs.at(row, panel * kPanelChannels + column));
    float& left = sums[n][2 * half];
    float& right = sums[n][2 * half + 1];
    left = fmaf(own, pair.x, left) * exp2_approx(sign * x.x);
    right = fmaf(own, pair.y, right) * exp2_approx(sign * x.y);
  });
}

/// From what is read of S, a panel of it, the gradient of what reads; of values it is o, which is
/// here for the gradients of gates alone.
template <bool kOfKeys, class Own, int kPanels>
__device__ __forceinline__ void finish_reads(Product<Own>& reads, Product<Own>& x,
                                             Product<Own>& behind, GateTerms<Own>& gates,
                                             const SideOfChunk<kPanels>& of, int panel) {
  const BackwardParams& p = of.p;
  Product<Own> others;
  clear(others);
  const int end = has_rows<Own>(of.chunk) ? Own::row_block() + 1 : 0;
  multiply_columns<Own>(others, of.scores, of.writes(panel), 0, end);
  clear(behind);
  add_products<Own>(behind, -1.0F, others, of.reads(panel));
  for_each<Own>(reads, [&](float& sum, int, int) { sum *= p.scale; });
  clear(x);
  add_products<Own>(x, 1.0F, reads, of.reads(panel));
  if constexpr (kOfKeys) {
    if (wants_shared_gates(p)) add_rows<Own>(gates.reads, x);
    add(reads, others);
    finish<Own>(reads, of.writes(panel), of.channels, panel, 1.0F);
    store_gradients<Own>(reads, p, of.chunk, of.side.read_gradients, of.first_panel + panel,
                         of.side.channels, of.side.adds);
  }
}

/// From what is read of D the gradient of what is written.
template <bool kOfKeys, class Own, int kPanels>
__device__ __forceinline__ void finish_writes(Product<Own>& writes, Product<Own>& behind,
                                              GateTerms<Own>& gates, const SideOfChunk<kPanels>& of,
                                              int panel) {
  const BackwardParams& p = of.p;
  if (kOfKeys && wants_shared_gates(p)) {
    Product<Own> own;
    clear(own);
    add_products<Own>(own, 1.0F, writes, of.writes(panel));
    add_rows<Own>(gates.writes, own);
  }
  multiply_transposed<Own>(writes, of.scores, of.reads(panel), Own::row_block(), of.chunk.steps());
  add_products<Own>(behind, 1.0F, writes, of.writes(panel));
  finish<Own>(writes, of.reads(panel), of.channels, panel, -1.0F);
  store_gradients<Own>(writes, p, of.chunk, of.side.write_gradients, of.first_panel + panel,
                       of.side.channels, of.side.adds);
}

/// Makes one side's gradients of the sums over states. Leaves what those of its gates are made of:
/// y + c - r, and x in the place of the decays.
template <bool kOfKeys, class Own, int kPanels>
__device__ __forceinline__ void finish_side(Product<Own> (&behind)[kPanels], GateTerms<Own>& gates,
                                            Product<Own> (&reads)[kPanels],
                                            Product<Own> (&writes)[kPanels],
                                            const SideOfChunk<kPanels>& of) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    Product<Own> x;
    finish_reads<kOfKeys, Own>(reads[panel], x, behind[panel], gates, of, panel);
    finish_writes<kOfKeys, Own>(writes[panel], behind[panel], gates, of, panel);
    store_tile<Own>(of.channels.logs, x, panel);  // the decays are done with
  }
}

/// The gradients of a side's gates, of a chunk that is not strong; `memory` lies over panels that are
/// done with.
template <class Own, int kPanels>
__device__ __forceinline__ void make_gates(GateSums<Own, kPanels>& memory,
                                           const Product<Own> (&behind)[kPanels],
                                           const SideOfChunk<kPanels>& of) {
  if (of.side.gate_gradients.data == nullptr) return;
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    store_tile<Own>(memory.behind, behind[panel], panel);
  }
  __syncthreads();  // all terms are there
  sum_gates(memory, of.channels);
  store_channel_gates<Own>(of.channels.logs, of.p, of.chunk, of.side,
                           of.first_panel * kPanelChannels, of.side.adds);
}

/// The gradients of the gates of keys; `shared` has the terms of those of all channels, which are left
/// in `memory`.
template <class Own, int kKeyPanels>
__device__ __forceinline__ void finish_key_gates(KeyGateMemory<Own, kKeyPanels>& memory,
                                                 GateTerms<Own>& shared,
                                                 const Product<Own> (&behind)[kKeyPanels],
                                                 const SideOfChunk<kKeyPanels>& of) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kKeyPanels * kPanelChannels) shared.states = of.channels.products[thread];
  store_gate_terms<Own>(memory.shared, shared);
  make_gates<Own>(memory.sums, behind, of);
}

}  // namespace attune::cuda::chunk_mma::backward
