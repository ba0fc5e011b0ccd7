// The gradients of a chunk's tokens where a head has several panels of channels, none with gates: a
// block for each panel of keys, whose dq and dk it makes, and for each panel of values, whose dv it
// makes, of the chunk's states and of what scores add (chunk_scores.cu). No two blocks add to one
// gradient.
#include "cuda/chunk_mma/backward/panel_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace panel_gradients_kernels {  // nvcc names an anonymous one anew in every build

using Own = PanelWarps;

struct PanelMemory {
  PanelStages stages;
  TokenDecays decays;
  GateMemory<Own> gates;
};
static_assert(sizeof(PanelMemory) <= panels_shared_bytes(false));
using Block = PanelBlock<PanelMemory>;

/// Done by the first warp, for all that comes behind the next barrier.
__device__ __forceinline__ void find_decays(const Block& block) {
  TokenDecayScan scan(block.p, block.chunk.place.sequence, block.chunk.head);
  if (!scan.is_mine()) return;
  scan.fetch(block.chunk.place);
  scan.sum(block.memory.decays);
}

template <class Case>
__device__ __forceinline__ void run_keys(const Block& block) {
  const BackwardParams& p = block.p;
  const TokenDecays& decays = block.memory.decays;
  PanelStages& stages = block.memory.stages;
  PanelOperands<true, Case> loaded(block);
  if (p.has_states) begin_states(loaded);
  find_decays(block);
  Product<Own> dq;
  Product<Own> dk;
  clear(dq);
  clear(dk);
  float products[1]{};
  if (p.has_states) {
    read_states<true, 1>(dq, dk, products, wants_shared_gates(p), loaded);
  } else {
    loaded.fetch_own();
  }
  loaded.store_own();
  block.fetch_scores(block.scores().values, 2);
  __syncthreads();  // q, k and decays are there
  GateTerms<Own> gates;
  gates.states = products[0] * decays.total.high;
  const Panel q = stages.at(0);
  const Panel k = stages.at(1);
  const Panel scores = stages.at(2);
  scale_rows<Own>(dq, gates.reads, q,
                  [&](int token) { return p.scale * decays.from_start(token); });
  scale_rows<Own>(dk, gates.writes, k, [&](int token) { return decays.to_end(token); });
  copy_async_wait<0>();
  __syncthreads();  // R is there
  const int row = Own::row_block();
  multiply_columns<Own>(dq, scores, k, 0, row + 1);
  store_gradients<Own>(dq, p, block.chunk, p.keys.read_gradients, block.panel, p.keys.channels,
                       p.keys.adds);
  multiply_transposed<Own>(dk, scores, q, row, kSteps);
  store_gradients<Own>(dk, p, block.chunk, p.keys.write_gradients, block.panel, p.keys.channels,
                       p.keys.adds);
  if (!wants_shared_gates(p)) return;
  store_gate_terms<Own>(block.memory.gates, gates);
  __syncthreads();  // all parts are there
  store_gate_parts(block, block.memory.gates);
}

template <class Case>
__device__ __forceinline__ void run_values(const Block& block) {
  const TokenDecays& decays = block.memory.decays;
  Product<Own> dv;
  read_values<Case>(dv, block, [&] { find_decays(block); });
  for_each<Own>(dv, [&](float& sum, int token, int) { sum *= decays.to_end(token); });
  finish_values(dv, block);
}

/// grid: panels of keys and of values x heads x chunks.
template <class Case>
__global__ __launch_bounds__(Own::kThreads,
                             2) void panel_gradients(const __grid_constant__ BackwardParams p) {
  extern __shared__ __align__(kWarpgroupAlignment) std::byte shared[];
  __shared__ PanelWork work;
  if (!take_panel<PanelOrder::kByChunk>(p, work)) return;
  auto& memory = *reinterpret_cast<PanelMemory*>(shared);
  const Block block{p, work, work.chunk, memory, work.panel};
  if (work.is_of_keys) {
    run_keys<Case>(block);
  } else {
    run_values<Case>(block);
  }
}

}  // namespace panel_gradients_kernels

void launch_panel_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<false, true>(p.quads, [&]<bool kQuads>() {
    launch<panel_gradients<PanelCase<false, kQuads, true>>>({.grid = grid_of(panel_blocks(p)),
                                                             .block = Own::kThreads,
                                                             .shared_bytes = sizeof(PanelMemory)},
                                                            stream, p);
  });
}

}  // namespace attune::cuda::chunk_mma::backward
