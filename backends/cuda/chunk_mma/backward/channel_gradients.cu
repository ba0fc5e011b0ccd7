// chunk_gradients.cu's kernel where key channels, and no others, have gates: its formulas hold for the
// operands of channel_scan.cuh, without decays; of what they give, dq_i is to be multiplied by
// 2^(x_i), and dk_j by 2^(-x_j).
#include "cuda/chunk_mma/backward/channel_sums.cuh"
#include "cuda/chunk_mma/backward/strong_chunk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace channel_gradients_kernels {  // nvcc names an anonymous one anew in every build

/// With two blocks of eight warps in its place registers spill.
using Own = Warps<kChannelWarps / 4>;

/// A block's chunk.
template <int kKeyPanels, int kValuePanels>
struct Block {
  const BackwardParams& p;
  const Chunk& chunk;
  Panels<kKeyPanels, kValuePanels> panels;

  __device__ ChannelMemory<kKeyPanels>& keys() const {
    return *reinterpret_cast<ChannelMemory<kKeyPanels>*>(panels.end());
  }
  __device__ KeyGateMemory<Own, kKeyPanels>& gates() const {
    using Memory = KeyGateMemory<Own, kKeyPanels>;
    return *reinterpret_cast<Memory*>(panels.end() - sizeof(Memory));
  }
  __device__ SideOfChunk<kKeyPanels> side_of_keys() const {
    return {p, chunk, p.keys, keys(), panels.memory, 0, kKeyPanels, panels.value_scores(), 0};
  }
};

/// Loads the chunk's tokens, with their decays from and to its middle where it is not strong;
/// returns whether it is.
template <bool kQuads, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ bool load_tokens(const Block<kKeyPanels, kValuePanels>& block) {
  const BackwardParams& p = block.p;
  const auto& panels = block.panels;
  ChannelMemory<kKeyPanels>& keys = block.keys();
  PanelGates<Own, kKeyPanels> gates(p, p.keys, block.chunk, 0);
  LoadedTokens<Own, kKeyPanels, kValuePanels, kQuads> tokens;
  tokens.fetch_values(p, block.chunk);
  tokens.fetch_keys(p, block.chunk);
  tokens.store_values(panels);
  const bool strong = scan_channels<Own>(keys, reinterpret_cast<Log2Sum*>(panels.memory), gates);
  if (strong) {
    keep_token_decays<Own>(keys, p, p.keys, block.chunk, 0);
    __syncthreads();  // each token's decays are there
  }
  tokens.store_keys(panels, [&](LoadedPanel<Own>& q, LoadedPanel<Own>& k, int panel) {
    if (!strong) decay_tokens(q, k, panel, keys.logs);
  });
  __syncthreads();  // tokens are there
  return strong;
}

/// The gradients of a chunk that is not strong, but for those of its gates.
template <int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void find_gradients(Product<Own> (&behind)[kKeyPanels],
                                               GateTerms<Own>& gates,
                                               const Block<kKeyPanels, kValuePanels>& block) {
  const BackwardParams& p = block.p;
  const auto& panels = block.panels;
  LoadedStates<Own, false> states;
  if (p.has_states) states.fetch(p, block.chunk, 0, 0);
  Scores<Own> scores;
  scores.multiply(panels, block.chunk);
  scores.decay(gates, [&](int, int) { return p.scale; });
  take_diagonal<Own>(scores.values, block.keys().diagonal);
  Gradients<Own, kKeyPanels, kValuePanels> sums;
  if (p.has_states) {
    sums.read_states(states, panels, p, block.chunk,
                     [&](LoadedStates<Own, false>& loaded, int key) {
                       decay_rows(loaded.forward, loaded.back, block.keys(), key);
                       loaded.forward.store(panels.forward_state(), panels.memory);
                       loaded.back.store(panels.back_state(), panels.memory);
                     });
  }
  scores.store(panels);
  __syncthreads();  // scores are there

#pragma unroll
  for (int value = 0; value < kValuePanels; ++value) {
    Product<Own>& dv = sums.dv[value];
    multiply_transposed<Own>(dv, panels.key_scores(), panels.d_o(value), Own::row_block(),
                             block.chunk.steps());
    store_gradients<Own>(dv, p, block.chunk, p.values.write_gradients, value, p.values.channels,
                         p.values.adds);
  }
  finish_side<true, Own>(behind, gates, sums.dq, sums.dk, block.side_of_keys());
}

template <int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void run_weak(const Block<kKeyPanels, kValuePanels>& block) {
  Product<Own> behind[kKeyPanels];
  GateTerms<Own> shared;
  find_gradients(behind, shared, block);
  __syncthreads();  // panels are done with
  finish_key_gates(block.gates(), shared, behind, block.side_of_keys());
}

template <int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void run_strong(const Block<kKeyPanels, kValuePanels>& block) {
  const BackwardParams& p = block.p;
  auto& gates = block.gates();
  const StrongChunk<Own, kKeyPanels, kValuePanels, false> strong(
      p, block.chunk, block.panels.memory, block.keys().logs, nullptr, 0, 0);
  strong.walk_values(nullptr);
  strong.walk_keys(&gates.gradients);
  __syncthreads();  // the gradients of gates are there, panels are done with
  store_channel_gates<Own>(gates.gradients, p, block.chunk, p.keys, 0, p.keys.adds);
}

/// grid: heads x chunks.
template <int kKeyPanels, int kValuePanels, bool kQuads>
__global__ __launch_bounds__(Own::kThreads,
                             1) void channel_gradients(const __grid_constant__ BackwardParams p) {
  static_assert(
      chunk_shared_bytes(kKeyPanels * kPanelChannels, kValuePanels * kPanelChannels, true, false) ==
      Panels<kKeyPanels, kValuePanels>::kPanels * kPanelBytes + sizeof(ChannelMemory<kKeyPanels>));
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  if (!take_chunk(p, chunk, has_work)) return;
  const Block<kKeyPanels, kValuePanels> block{p, chunk, {memory}};
  const bool strong = load_tokens<kQuads>(block);
  if (strong) {
    run_strong(block);
  } else {
    run_weak(block);
  }
  if (!wants_shared_gates(p)) return;
  store_shared_gates_of(block.gates(), p, chunk, strong, p.adds_gates);
}

}  // namespace channel_gradients_kernels

void launch_channel_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<1, 2>(panels_of(p.keys.channels), [&]<int kKeyPanels>() {
    with_value<1, 2>(panels_of(p.values.channels), [&]<int kValuePanels>() {
      with_value<false, true>(p.quads, [&]<bool kQuads>() {
        launch<channel_gradients<kKeyPanels, kValuePanels, kQuads>>(
            {.grid = grid_of(p.heads * p.walked_chunks()),
             .block = Own::kThreads,
             .shared_bytes = chunk_shared_bytes(p.keys.channels, p.values.channels, true, false)},
            stream, p);
      });
    });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
