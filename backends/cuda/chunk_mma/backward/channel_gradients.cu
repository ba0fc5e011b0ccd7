// chunk_gradients.cu's kernel where key channels have gates: its formulas hold for the operands of
// channel_scan.cuh, without decays; of what they give, dq_i is to be multiplied by 2^(x_i), and dk_j
// by 2^(-x_j).
#include "cuda/chunk_mma/backward/channel_gates.cuh"
#include "cuda/chunk_mma/backward/strong_chunk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace channel_gradients_kernels {  // nvcc names an anonymous one anew in every build

/// With two blocks of eight warps in its place registers spill.
using Own = Warps<4>;

/// What a lane has of the sums that gradients of gates are made of, of the elements of a Product.
template <class Own>
struct ChannelTerms {
  Product<Own> reads;   // x
  Product<Own> behind;  // y + c - r
};

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

/// Takes what a token has of itself out of R: no gate has part in it.
template <class Own>
__device__ __forceinline__ void take_diagonal(Scores<Own>& scores, float (&diagonal)[kTokens]) {
  for_each<Own>(scores.values, [&](float& score, int row, int column) {
    if (row != column) return;
    diagonal[row] = score;
    score = 0.0F;
  });
}

/// Adds what a token has of itself, and multiplies by 2^(sign x).
template <class Own, int kKeyPanels>
__device__ __forceinline__ void finish(Product<Own>& sums, const Panel& rows,
                                       const ChannelMemory<kKeyPanels>& channels, int panel,
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

template <class Own, int kKeyPanels>
__device__ __forceinline__ void store_terms(ChannelGateMemory<Own, kKeyPanels>& to,
                                            const ChannelTerms<Own> (&terms)[kKeyPanels]) {
#pragma unroll
  for (int panel = 0; panel < kKeyPanels; ++panel) {
    for_each_pair<Own>([&](int n, int half, int row, int column) {
      const auto store = [&](ChannelTile<kKeyPanels>& tile, const Product<Own>& from) {
        *reinterpret_cast<float2*>(&tile.at(row, panel * kPanelChannels + column)) = {
            from[n][2 * half], from[n][2 * half + 1]};
      };
      store(to.reads, terms[panel].reads);
      store(to.behind, terms[panel].behind);
    });
  }
}

/// q and k times the decays from and to the chunk's middle.
template <class Own, int kKeyPanels>
__device__ __forceinline__ void decay_keys(LoadedPanel<Own>& q, LoadedPanel<Own>& k, int panel,
                                           const ChannelTile<kKeyPanels>& logs) {
  const int channel = panel * kPanelChannels + LoadedPanel<Own>::channel();
  const auto factors = [&](float sign) {
    return [&logs, channel, sign](int row) {
      const float4 x = *reinterpret_cast<const float4*>(&logs.at(row, channel));
      return float4{exp2_approx(sign * x.x), exp2_approx(sign * x.y), exp2_approx(sign * x.z),
                    exp2_approx(sign * x.w)};
    };
  };
  q.multiply(factors(1.0F));
  k.multiply(factors(-1.0F));
}

/// Stores a panel of S' and D', and adds <S', D'> to the products.
template <class Own, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void store_states(LoadedStates<Own>& states,
                                             const Panels<kKeyPanels, kValuePanels>& panels,
                                             ChannelMemory<kKeyPanels>& channels, int key) {
  const int first = key * kPanelChannels;
  states.forward.scale([&](int row) { return channels.to_middle[first + row]; });
  states.back.scale([&](int row) { return channels.to_end(first + row); });
  states.forward.products_with(states.back, [&](int row, float sum) {
    const float all = sum_of_loads(sum);
    if (LoadedPanel<Own>::channel() == 0) channels.products[first + row] += all;
  });
  states.forward.store(panels.forward_state(), panels.memory);
  states.back.store(panels.back_state(), panels.memory);
}

/// The gradients of a chunk that is not strong, and the terms of its gates.
template <class Own, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void find_gradients(ChannelTerms<Own> (&terms)[kKeyPanels],
                                               GateTerms<Own>& gates,
                                               const Panels<kKeyPanels, kValuePanels>& panels,
                                               ChannelMemory<kKeyPanels>& channels,
                                               const BackwardParams& p, const Chunk& chunk) {
  LoadedStates<Own> states;
  states.fetch(p, chunk, 0, 0);
  Scores<Own> scores;
  scores.multiply(panels);
  scores.decay(gates, [&](int, int) { return p.scale; });
  take_diagonal(scores, channels.diagonal);
  Gradients<Own, kKeyPanels, kValuePanels> sums;
  sums.read_states(states, panels, p, chunk, [&](LoadedStates<Own>& loaded, int key) {
    store_states(loaded, panels, channels, key);
  });
  scores.store(panels);
  __syncthreads();  // scores are there

  const int row = Own::row_block();
#pragma unroll
  for (int value = 0; value < kValuePanels; ++value) {
    Product<Own>& dv = sums.dv[value];
    multiply_transposed<Own>(dv, panels.key_scores(), panels.d_o(value), row, kSteps);
    store_gradients<Own>(dv, p, chunk, p.dv, value, p.value_channels, p.adds_values);
  }
#pragma unroll
  for (int key = 0; key < kKeyPanels; ++key) {
    Product<Own>& reads = terms[key].reads;
    Product<Own>& behind = terms[key].behind;
    Product<Own>& dq = sums.dq[key];
    Product<Own> others;
    clear(others);
    multiply_columns<Own>(others, panels.value_scores(), panels.k(key), 0, row + 1);
    clear(behind);
    add_products<Own>(behind, -1.0F, others, panels.q(key));
    for_each<Own>(dq, [&](float& sum, int, int) { sum *= p.scale; });
    clear(reads);
    add_products<Own>(reads, 1.0F, dq, panels.q(key));
    if (wants_shared_gates(p)) add_rows<Own>(gates.reads, reads);
    add(dq, others);
    finish<Own>(dq, panels.k(key), channels, key, 1.0F);
    store_gradients<Own>(dq, p, chunk, p.dq, key, p.key_channels, p.adds_keys);

    Product<Own>& dk = sums.dk[key];
    if (wants_shared_gates(p)) {
      Product<Own> writes;
      clear(writes);
      add_products<Own>(writes, 1.0F, dk, panels.k(key));
      add_rows<Own>(gates.writes, writes);
    }
    multiply_transposed<Own>(dk, panels.value_scores(), panels.q(key), row, kSteps);
    add_products<Own>(behind, 1.0F, dk, panels.k(key));
    finish<Own>(dk, panels.q(key), channels, key, -1.0F);
    store_gradients<Own>(dk, p, chunk, p.dk, key, p.key_channels, p.adds_keys);
  }
}

/// grid: heads x chunks.
template <int kKeyPanels, int kValuePanels, bool kQuads>
__global__ __launch_bounds__(Own::kThreads,
                             1) void channel_gradients(const __grid_constant__ BackwardParams p) {
  using GateMemory = ChannelGateMemory<Own, kKeyPanels>;
  static_assert(
      gradients_shared_bytes(kKeyPanels * kPanelChannels, kValuePanels * kPanelChannels, true) ==
      Panels<kKeyPanels, kValuePanels>::kPanels * kPanelBytes + sizeof(ChannelMemory<kKeyPanels>));
  extern __shared__ __align__(128) std::byte memory[];
  const Panels<kKeyPanels, kValuePanels> panels{memory};
  auto& channels = *reinterpret_cast<ChannelMemory<kKeyPanels>*>(panels.end());
  auto& gates = *reinterpret_cast<GateMemory*>(panels.end() - sizeof(GateMemory));
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  if (threadIdx.x == 0) {
    chunk = {};
    has_work = find_chunk(p, chunk);
    if (!has_work && p.gamma_terms != nullptr && chunk.number < p.chunks) {
      p.gamma_terms[block_number()] = 0.0F;
    }
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  ChannelGates<Own, kKeyPanels> loaded(p, chunk);
  LoadedTokens<Own, kKeyPanels, kValuePanels, kQuads> tokens;
  tokens.fetch_values(p, chunk);
  tokens.fetch_keys(p, chunk);
  tokens.store_values(panels);
  const bool strong = scan_channels(channels, reinterpret_cast<Log2Sum*>(memory), loaded);
  tokens.store_keys(panels, [&](LoadedPanel<Own>& q, LoadedPanel<Own>& k, int panel) {
    if (!strong) decay_keys<Own>(q, k, panel, channels.logs);
  });
  __syncthreads();  // tokens are there

  if (strong) {
    StrongChunk<Own, kKeyPanels, kValuePanels>(p, chunk, memory, channels, gates.reads).run();
    __syncthreads();  // the gradients of gates are there, panels are done with
  } else {
    ChannelTerms<Own> terms[kKeyPanels];
    GateTerms<Own> shared;
    find_gradients<Own>(terms, shared, panels, channels, p, chunk);
    __syncthreads();  // panels are done with
    store_terms(gates, terms);
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kKeyPanels * kPanelChannels) shared.states = channels.products[thread];
    store_gate_terms<Own>(gates.shared, shared);
    __syncthreads();  // all terms are there
    sum_gates(gates, channels);
  }
  store_channel_gates(gates, p, chunk, strong);
}

}  // namespace channel_gradients_kernels

void launch_channel_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<1, 2>(panels_of(p.key_channels), [&]<int kKeyPanels>() {
    with_value<1, 2>(panels_of(p.value_channels), [&]<int kValuePanels>() {
      with_value<false, true>(p.quads, [&]<bool kQuads>() {
        launch<channel_gradients<kKeyPanels, kValuePanels, kQuads>>(
            {.grid = grid_of(p.heads * p.chunks),
             .block = Own::kThreads,
             .shared_bytes = gradients_shared_bytes(p.key_channels, p.value_channels, true)},
            stream, p);
      });
    });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
