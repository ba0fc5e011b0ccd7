// The gradients of a chunk's tokens, from its states: a block a chunk of one head.
//
// Scores wait in registers until the states have been read, whose place they then take.
#include "cuda/chunk_mma/backward/scores.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace chunk_gradients_kernels {  // nvcc names an anonymous one anew in every build

/// From what tokens read of the states their gradients, which are stored, and the terms of gates.
template <class Own, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void finish_gradients(Gradients<Own, kKeyPanels, kValuePanels>& sums,
                                                 GateTerms<Own>& gates,
                                                 const Panels<kKeyPanels, kValuePanels>& panels,
                                                 const TokenDecays& decays, const BackwardParams& p,
                                                 const Chunk& chunk) {
  const int row = Own::row_block();
#pragma unroll
  for (int key = 0; key < kKeyPanels; ++key) {
    Product<Own>& dq = sums.dq[key];
    scale_rows<Own>(dq, gates.reads, panels.q(key),
                    [&](int token) { return p.scale * decays.from_start(token); });
    multiply_columns<Own>(dq, panels.value_scores(), panels.k(key), 0, row + 1);
    store_gradients<Own>(dq, p, chunk, p.keys.read_gradients, key, p.keys.channels, p.keys.adds);
    Product<Own>& dk = sums.dk[key];
    scale_rows<Own>(dk, gates.writes, panels.k(key),
                    [&](int token) { return decays.to_end(token); });
    multiply_transposed<Own>(dk, panels.value_scores(), panels.q(key), row, chunk.steps());
    store_gradients<Own>(dk, p, chunk, p.keys.write_gradients, key, p.keys.channels, p.keys.adds);
  }
#pragma unroll
  for (int value = 0; value < kValuePanels; ++value) {
    Product<Own>& dv = sums.dv[value];
    for_each<Own>(dv, [&](float& sum, int token, int) { sum *= decays.to_end(token); });
    multiply_transposed<Own>(dv, panels.key_scores(), panels.d_o(value), row, chunk.steps());
    store_gradients<Own>(dv, p, chunk, p.values.write_gradients, value, p.values.channels,
                         p.values.adds);
  }
}

/// grid: heads x chunks.
template <int kKeyPanels, int kValuePanels, bool kQuads>
__global__ __launch_bounds__(
    WarpsOf<kKeyPanels, kValuePanels>::kThreads,
    kResidentBlocks<kKeyPanels, kValuePanels>) void chunk_gradients(const __grid_constant__
                                                                        BackwardParams p) {
  using Own = WarpsOf<kKeyPanels, kValuePanels>;
  extern __shared__ __align__(128) std::byte memory[];
  const Panels<kKeyPanels, kValuePanels> panels{memory};
  auto& decays = *reinterpret_cast<TokenDecays*>(panels.end());
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  if (!take_chunk(p, chunk, has_work)) return;

  TokenDecayScan scan(p, chunk.place.sequence, chunk.head);
  if (scan.is_mine()) scan.fetch(chunk.place);
  LoadedTokens<Own, kKeyPanels, kValuePanels, kQuads> tokens;
  tokens.fetch_values(p, chunk);
  tokens.fetch_keys(p, chunk);
  tokens.store_keys(panels, [](const auto&...) {});
  tokens.store_values(panels);
  LoadedStates<Own, false> states;
  if (p.has_states) states.fetch(p, chunk, 0, 0);
  if (scan.is_mine()) scan.sum(decays);
  __syncthreads();  // tokens and decays are there

  GateTerms<Own> gates;
  Scores<Own> scores;
  scores.multiply(panels, chunk);
  scores.decay(gates, [&](int row, int column) { return p.scale * decays.between(row, column); });
  Gradients<Own, kKeyPanels, kValuePanels> sums;
  if (p.has_states) {
    sums.read_states(states, panels, p, chunk, [&](const LoadedStates<Own, false>& loaded, int) {
      loaded.forward.products_with(loaded.back, [&](int, float sum) {
        gates.states = fmaf(sum, decays.total.high, gates.states);
      });
      loaded.forward.store(panels.forward_state(), memory);
      loaded.back.store(panels.back_state(), memory);
    });
  }
  scores.store(panels);
  __syncthreads();  // scores are there

  if (has_rows<Own>(chunk)) finish_gradients<Own>(sums, gates, panels, decays, p, chunk);
  if (!wants_shared_gates(p)) return;
  __syncthreads();  // panels are done with
  auto& terms = *reinterpret_cast<GateMemory<Own>*>(memory);
  store_gate_terms<Own>(terms, gates);
  __syncthreads();  // all parts are there
  if (Own::number() == 0) store_shared_gates(p, chunk, gate_gradients<Own>(terms), p.adds_gates);
}

}  // namespace chunk_gradients_kernels

void launch_chunk_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<1, 2>(panels_of(p.keys.channels), [&]<int kKeyPanels>() {
    with_value<1, 2>(panels_of(p.values.channels), [&]<int kValuePanels>() {
      with_value<false, true>(p.quads, [&]<bool kQuads>() {
        launch<chunk_gradients<kKeyPanels, kValuePanels, kQuads>>(
            {.grid = grid_of(p.heads * p.walked_chunks()),
             .block = WarpsOf<kKeyPanels, kValuePanels>::kThreads,
             .shared_bytes = chunk_shared_bytes(p.keys.channels, p.values.channels, false, false)},
            stream, p);
      });
    });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
