// chunk_gradients.cu's kernel where value channels have gates, or these and key channels: as in
// channel_gradients.cu, dq_i is to be multiplied by 2^(x_i), dk_j by 2^(-x_j), and dv_j likewise.
//
// Value channels go panel by panel, any number of them, while what is summed up over them waits in
// registers: dq, dk and R.
#include "cuda/chunk_mma/backward/strong_chunk.cuh"
#include "cuda/chunk_mma/backward/value_channel_block.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace value_channel_gradients_kernels {  // nvcc names an anonymous one anew in every build

/// Multiplies the states' columns by the decays of values.
__device__ __forceinline__ void decay_columns(LoadedStates<Own, true>& states,
                                              const ChannelMemory<1>& channels) {
  const int channel = LoadedPanel<Own>::channel();
  const float4 to_middle = *reinterpret_cast<const float4*>(&channels.to_middle[channel]);
  const float4 to_end{channels.to_end(channel), channels.to_end(channel + 1),
                      channels.to_end(channel + 2), channels.to_end(channel + 3)};
  states.forward.multiply([&](int) { return to_middle; });
  states.back.multiply([&](int) { return to_end; });
}

/// <S', D'> of each column, summed up over the warp's rows; added to what is there behind the first
/// keys.
__device__ __forceinline__ void add_column_products(float (&products)[kPanelChannels],
                                                    const LoadedStates<Own, true>& states,
                                                    bool adds) {
  float4 sum{};
#pragma unroll
  for (int i = 0; i < LoadedPanel<Own>::kLoads; ++i) {
    const float4 x = states.forward.quad(i);
    const float4 y = states.back.quad(i);
    sum = {fmaf(x.x, y.x, sum.x), fmaf(x.y, y.y, sum.y), fmaf(x.z, y.z, sum.z),
           fmaf(x.w, y.w, sum.w)};
  }
  // A warp has two rows at a time, and each channel of a row once.
  constexpr int kApart = LoadedPanel<Own>::kLanes;
  static_assert(kWarpSize == 2 * kApart);
  sum = {sum.x + __shfl_xor_sync(kFullWarp, sum.x, kApart),
         sum.y + __shfl_xor_sync(kFullWarp, sum.y, kApart),
         sum.z + __shfl_xor_sync(kFullWarp, sum.z, kApart),
         sum.w + __shfl_xor_sync(kFullWarp, sum.w, kApart)};
  if (threadIdx.x % kWarpSize >= kApart) return;
  auto& to = *reinterpret_cast<float4*>(&products[LoadedPanel<Own>::channel()]);
  const float4 before = adds ? to : float4{};
  to = {before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w};
}

/// What is summed up over the panels of values.
template <int kKeyPanels>
struct KeySums {
  Product<Own> dq[kKeyPanels];
  Product<Own> dk[kKeyPanels];
  Product<Own> scores;  // do v, then R
  GateTerms<Own> gates;

  __device__ KeySums() {
    for (auto& sums : dq) clear(sums);
    for (auto& sums : dk) clear(sums);
    clear(scores);
  }
};

/// Stores P, without what tokens have of themselves.
template <int kKeyPanels>
__device__ __forceinline__ void make_key_scores(const Block<kKeyPanels>& block) {
  Product<Own> scores;
  clear(scores);
  if (has_rows<Own>(block.chunk)) add_key_scores<Own>(scores, block.panels);
  scale_scores<Own>(scores, block.p.scale);
  take_diagonal<Own>(scores, block.channels.values.diagonal);
  store_scores<Own>(block.key_scores(), scores);
}

/// What tokens read of a panel of values of the states: adds to dq and dk, makes the first terms of o
/// and dv.
template <int kKeyPanels>
__device__ __forceinline__ void read_states(KeySums<kKeyPanels>& sums, Product<Own>& o,
                                            Product<Own>& dv, const Block<kKeyPanels>& block,
                                            int value_panel) {
  const auto& panels = block.panels;
  auto& products = block.channels.products;
  clear(o);
  clear(dv);
  if (!block.p.has_states) {
    if (threadIdx.x < kPanelChannels) block.channels.values.products[threadIdx.x] = 0.0F;
    __syncthreads();  // P is there
    return;
  }
  const bool takes_part = has_rows<Own>(block.chunk);
  LoadedStates<Own, true> states;
  states.fetch(block.p, block.chunk, 0, value_panel);
#pragma unroll
  for (int key = 0; key < kKeyPanels; ++key) {
    decay_columns(states, block.channels.values);
    decay_rows(states.forward, states.back, block.channels.keys, key);
    add_column_products(products[Own::number()], states, key > 0);
    states.forward.store(panels.forward_state(), panels.memory);
    states.back.store(panels.back_state(), panels.memory);
    __syncthreads();  // S and D are there
    if (key + 1 < kKeyPanels) states.fetch(block.p, block.chunk, key + 1, value_panel);
    if (takes_part) {
      multiply_rows<Own>(sums.dq[key], panels.d_o(0), panels.forward_state());
      multiply_rows<Own>(sums.dk[key], panels.v(0), panels.back_state());
      multiply_columns<Own>(dv, panels.k(key), panels.back_state(), 0, kSteps);
      multiply_columns<Own>(o, panels.q(key), panels.forward_state(), 0, kSteps);
    }
    __syncthreads();  // S and D are done with
  }
  if (threadIdx.x >= kPanelChannels) return;
  float sum = 0.0F;
  for (const auto& of_warp : products) sum += of_warp[threadIdx.x];
  block.channels.values.products[threadIdx.x] = sum;
}

/// Adds a panel of values to the sums, and makes dv and the gradients of gates of its channels.
template <int kKeyPanels>
__device__ __forceinline__ void take_values(KeySums<kKeyPanels>& sums,
                                            const Block<kKeyPanels>& block, int panel) {
  const SideOfChunk<1> side = block.side_of_values(panel);
  if (panel == 0) make_key_scores(block);
  if (has_rows<Own>(block.chunk)) add_value_scores<Own>(sums.scores, block.panels);
  Product<Own> o[1];
  Product<Own> dv[1];
  read_states(sums, o[0], dv[0], block, panel);
  Product<Own> behind[1];
  finish_side<false, Own>(behind, sums.gates, o, dv, side);
  make_gates<Own>(block.value_sums(), behind, side);
  __syncthreads();  // v, do, their decays and the sums are done with
}

/// dq and dk, and the gradients of the gates of keys, once all values are in the sums.
template <int kKeyPanels>
__device__ __forceinline__ void finish_keys(KeySums<kKeyPanels>& sums,
                                            const Block<kKeyPanels>& block) {
  const SideOfChunk<kKeyPanels> side = block.side_of_keys();
  Product<Own>& scores = sums.scores;
  Product<Own> terms;
  for_each_pair<Own>([&](int n, int half, int row, int column) {
    const float2 of_keys = load_pair(block.key_scores(), row, column);
    const float* const of_values = &scores[n][2 * half];
    terms[n][2 * half] = column < row ? of_keys.x * of_values[0] : 0.0F;
    terms[n][2 * half + 1] = column + 1 < row ? of_keys.y * of_values[1] : 0.0F;
  });
  add_score_terms(sums.gates, terms);
  scale_scores<Own>(scores, block.p.scale);
  take_diagonal<Own>(scores, block.channels.keys.diagonal);
  store_scores<Own>(side.scores, scores);
  __syncthreads();  // R is there
  Product<Own> behind[kKeyPanels];
  finish_side<true, Own>(behind, sums.gates, sums.dq, sums.dk, side);
  __syncthreads();  // panels are done with
  finish_key_gates(block.key_gates(), sums.gates, behind, side);
}

template <bool kQuads, int kKeyPanels>
__device__ __forceinline__ void run_weak(const Block<kKeyPanels>& block, int value_panels) {
  KeySums<kKeyPanels> sums;
#pragma unroll 1
  for (int panel = 0; panel < value_panels; ++panel) {
    if (panel > 0) scan_values(block, panel);
    load_values<kQuads>(block, panel, false);
    __syncthreads();  // tokens are there
    take_values(sums, block, panel);
  }
  finish_keys(sums, block);
  if (!wants_shared_gates(block.p)) return;
  store_shared_gates_of(block.key_gates(), block.p, block.chunk, false, block.p.adds_gates);
}

/// Panel by panel of values, each of which adds to the gradients of keys.
template <bool kQuads, int kKeyPanels>
__device__ __forceinline__ void run_strong(const Block<kKeyPanels>& block, int value_panels) {
  const BackwardParams& p = block.p;
  ChannelMemory<1>& values = block.channels.values;
  auto& gates = block.key_gates();
#pragma unroll 1
  for (int panel = 0; panel < value_panels; ++panel) {
    const int first = panel * kPanelChannels;
    load_values<kQuads>(block, panel, true);
    keep_token_decays<Own>(values, p, p.values, block.chunk, first);
    __syncthreads();  // tokens and the decays of each are there
    const StrongChunk<Own, kKeyPanels, 1, true> strong(
        p, block.chunk, block.panels.memory, block.channels.keys.logs, &values.logs, 0, first);
    strong.walk_values(&block.strong_value_gates());
    __syncthreads();  // the gradients of the gates of values are there
    store_channel_gates<Own>(block.strong_value_gates(), p, block.chunk, p.values, first,
                             p.values.adds);
    __syncthreads();  // they are done with
    strong.walk_keys(&gates.gradients);
    __syncthreads();  // the gradients of the gates of keys are there
    store_channel_gates<Own>(gates.gradients, p, block.chunk, p.keys, 0, strong.adds_keys());
    if (wants_shared_gates(p)) {
      store_shared_gates_of(gates, p, block.chunk, true, p.adds_gates || panel > 0);
    }
    __syncthreads();  // tokens and gradients are done with
  }
}

/// grid: heads x chunks.
template <int kKeyPanels, bool kQuads>
__global__ __launch_bounds__(Own::kThreads, 1) void value_channel_gradients(
    const __grid_constant__ BackwardParams p) {
  static_assert(chunk_shared_bytes(kKeyPanels * kPanelChannels, 1, true, true) ==
                Block<kKeyPanels>::kPanels * kPanelBytes + sizeof(BothChannels<kKeyPanels>));
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  if (!take_chunk(p, chunk, has_work)) return;
  const Block<kKeyPanels> block(p, chunk, memory);
  const int value_panels = (p.values.channels + kPanelChannels - 1) / kPanelChannels;
  if (load_keys<kQuads>(block, value_panels)) {
    run_strong<kQuads>(block, value_panels);
  } else {
    run_weak<kQuads>(block, value_panels);
  }
}

}  // namespace value_channel_gradients_kernels

void launch_value_channel_gradients(const BackwardParams& p, cudaStream_t stream) {
  with_value<1, 2>(panels_of(p.keys.channels), [&]<int kKeyPanels>() {
    with_value<false, true>(p.quads, [&]<bool kQuads>() {
      launch<value_channel_gradients<kKeyPanels, kQuads>>(
          {.grid = grid_of(p.heads * p.walked_chunks()),
           .block = Own::kThreads,
           .shared_bytes = chunk_shared_bytes(p.keys.channels, p.values.channels, true, true)},
          stream, p);
    });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
