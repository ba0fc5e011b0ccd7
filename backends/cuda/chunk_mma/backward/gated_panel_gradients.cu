// panel_gradients.cu's kernel where channels have gates: what tokens read of states is of the operands
// of walk_operands.cu, and what scores add of those of channel_scan.cuh. A panel whose own channels
// may have gates has dq_i = 2^(x_i) (exp(G_mid) S do_i + ...), dk_j = 2^(-x_j) (exp(G_last - G_mid)
// D v_j + ...), and makes the gradients of its gates.
#include "cuda/chunk_mma/backward/channel_sums.cuh"
#include "cuda/chunk_mma/backward/panel_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace gated_panel_gradients_kernels {  // nvcc names an anonymous one anew in every build

using Own = PanelWarps;

struct PanelMemory {
  PanelStages stages;
  ChannelMemory<1> channels;
  GateMemory<Own> gates;
  float products[Own::kWarps][kPanelChannels];  // <S, D> of value channels, of each warp's rows
};
using Block = PanelBlock<PanelMemory>;

/// Makes `products` those of the channels, over the block.
template <bool kOfKeys>
__device__ __forceinline__ void sum_products(const Block& block,
                                             const float (&products)[kProducts<kOfKeys>]) {
  using Octets = PanelOctets;
  ChannelMemory<1>& channels = block.memory.channels;
  if constexpr (kOfKeys) {
#pragma unroll
    for (int i = 0; i < Octets::kCount; ++i) {
      float sum = products[i];
#pragma unroll
      for (int apart = 1; apart < Octets::kLanes; apart *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, apart);
      }
      const int key = Octets::row(i);
      if (Octets::channel() == 0) {
        channels.products[key] = channels.to_middle[key] * channels.to_end(key) * sum;
      }
    }
  } else {
    auto& of_warps = block.memory.products;
#pragma unroll
    for (int e = 0; e < Octets::kChannels; ++e) {
      float sum = products[e];
#pragma unroll
      for (int apart = Octets::kLanes; apart < kWarpSize; apart *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, apart);
      }
      if (threadIdx.x % kWarpSize < Octets::kLanes) {
        of_warps[Own::number()][Octets::channel() + e] = sum;
      }
    }
    __syncthreads();  // those of all warps are there
    if (threadIdx.x >= kPanelChannels) return;
    const auto value = static_cast<int>(threadIdx.x);
    float all = 0.0F;
    for (const auto& of_warp : of_warps) all += of_warp[value];
    channels.products[value] = channels.to_middle[value] * channels.to_end(value) * all;
  }
}

/// Leaves the panel's tokens, with the decays of its own channels, and the other side's scores in the
/// first panels of shared memory.
template <bool kOfKeys, class Operands>
__device__ __forceinline__ void load_own(const Block& block, Operands& loaded) {
  ChannelMemory<1>& channels = block.memory.channels;
  const ChunkScores& scores = block.scores();
  decay_tokens(loaded.own_reads, loaded.tokens, 0, channels.logs);
  loaded.store_own();
  block.fetch_scores(kOfKeys ? scores.values : scores.keys, 2);
  if (threadIdx.x < kTokens) {
    channels.diagonal[threadIdx.x] =
        kOfKeys ? scores.value_diagonal[threadIdx.x] : scores.key_diagonal[threadIdx.x];
  }
  copy_async_wait<0>();
  __syncthreads();  // the panel's tokens and the scores are there
}

/// What a panel's tokens read of the chunk's states, by the decays of its own channels up to the middle.
template <bool kOfKeys, class Case>
__device__ __forceinline__ void load_side(const Block& block, Product<Own>& reads,
                                          Product<Own>& writes) {
  const BackwardParams& p = block.p;
  const ChannelSide& side = kOfKeys ? p.keys : p.values;
  PanelStages& stages = block.memory.stages;
  ChannelMemory<1>& channels = block.memory.channels;
  PanelOperands<kOfKeys, Case> loaded(block);
  if (p.has_states) begin_states(loaded);
  {
    PanelGates<Own, 1> gates(p, side, block.chunk, block.panel * kPanelChannels);
    // A panel of tokens, which are not there yet.
    auto* const scratch = reinterpret_cast<Log2Sum*>(stages.panels[PanelStages::kStates]);
    scan_channels<Own>(channels, scratch, gates);
  }
  clear(reads);
  clear(writes);
  float products[kProducts<kOfKeys>]{};
  const bool wants_products =
      side.gate_gradients.data != nullptr || (kOfKeys && wants_shared_gates(p));
  if (p.has_states) {
    read_states<kOfKeys, kProducts<kOfKeys>>(reads, writes, products, wants_products, loaded);
  } else {
    loaded.fetch_own();
  }
  for_each<Own>(reads, [&](float& sum, int, int channel) { sum *= channels.to_middle[channel]; });
  for_each<Own>(writes, [&](float& sum, int, int channel) { sum *= channels.to_end(channel); });
  sum_products<kOfKeys>(block, products);
  load_own<kOfKeys>(block, loaded);
}

/// The gradients of a panel of a side, and of its gates.
template <bool kOfKeys, class Case>
__device__ __forceinline__ void run_side(const Block& block) {
  const BackwardParams& p = block.p;
  PanelStages& stages = block.memory.stages;
  ChannelMemory<1>& channels = block.memory.channels;
  Product<Own> reads[1];
  Product<Own> writes[1];
  load_side<kOfKeys, Case>(block, reads[0], writes[0]);
  const ChannelSide& side = kOfKeys ? p.keys : p.values;
  const SideOfChunk<1> of{p, block.chunk, side,         channels,   stages.panels[0],
                          0, 1,           stages.at(2), block.panel};
  Product<Own> behind[1];
  GateTerms<Own> shared;
  finish_side<kOfKeys, Own>(behind, shared, reads, writes, of);
  if (kOfKeys && wants_shared_gates(p)) {
    if (threadIdx.x < kPanelChannels) shared.states = channels.products[threadIdx.x];
    store_gate_terms<Own>(block.memory.gates, shared);
    __syncthreads();  // all parts are there
    store_gate_parts(block, block.memory.gates);
  }
  __syncthreads();  // panels are done with
  make_gates<Own>(*reinterpret_cast<GateSums<Own, 1>*>(stages.panels[0]), behind, of);
}

/// dv of a panel of values without gates.
template <class Case>
__device__ __forceinline__ void run_values(const Block& block) {
  Product<Own> dv;
  read_values<Case>(dv, block, [] {});
  finish_values(dv, block);
}

/// grid: panels of keys and of values x heads x chunks.
template <class Case>
__global__ __launch_bounds__(Own::kThreads, 2) void gated_panel_gradients(
    const __grid_constant__ BackwardParams p) {
  static_assert(sizeof(GateSums<Own, 1>) <= sizeof(PanelStages));
  extern __shared__ __align__(kWarpgroupAlignment) std::byte shared[];
  __shared__ PanelWork work;
  constexpr PanelOrder kOrder = Case::kValueGates ? PanelOrder::kBySide : PanelOrder::kByChunk;
  if (!take_panel<kOrder>(p, work)) return;
  auto& memory = *reinterpret_cast<PanelMemory*>(shared);
  const Block block{p, work, work.chunk, memory, work.panel};
  if (work.is_of_keys) {
    run_side<true, Case>(block);
  } else if constexpr (Case::kValueGates) {
    run_side<false, Case>(block);
  } else {
    run_values<Case>(block);
  }
}

template <class Case>
void launch_case(const BackwardParams& p, cudaStream_t stream) {
  launch<gated_panel_gradients<Case>>({.grid = grid_of(panel_blocks(p)),
                                       .block = Own::kThreads,
                                       .shared_bytes = sizeof(PanelMemory)},
                                      stream, p);
}

}  // namespace gated_panel_gradients_kernels

void launch_gated_panel_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<false, true>(p.values.gates.exist, [&]<bool kValueGates>() {
    if (!p.quads) return launch_case<PanelCase<kValueGates, false, true>>(p, stream);
    with_value<false, true>(
        p.is_cut, [&]<bool kCut>() { launch_case<PanelCase<kValueGates, true, kCut>>(p, stream); });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
