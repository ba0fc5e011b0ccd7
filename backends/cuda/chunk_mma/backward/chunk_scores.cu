// The scores of chunks, P and R of params.hpp, for the blocks of a chunk's panels (panel_gradients.cu,
// gated_panel_gradients.cu); and the gradients of gates that channels share, of which these and the
// scores each make a part. Where channels have gates, operands are those of channel_scan.cuh.
#include "cuda/chunk_mma/backward/channel_sums.cuh"
#include "cuda/chunk_mma/backward/score_parts.cuh"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace chunk_scores_kernels {  // nvcc names an anonymous one anew in every build

using Own = Warps<2>;
constexpr int kStages = 2;

struct ScoreMemory {
  std::byte panels[2 * kStages][kPanelBytes];
  TokenDecays decays;
  GateMemory<Own> gates;
};
static_assert(sizeof(ScoreMemory) <= panels_shared_bytes(false));
struct GatedScoreMemory : ScoreMemory {
  ChannelMemory<1> channels;  // of the panel at hand
  Log2Sum sums[Own::kThreads];
};

/// A panel of a side's tokens on its way, and that of its gates.
template <bool kQuads>
class SideTokens {
 public:
  __device__ __forceinline__ SideTokens(const BackwardParams& p, const Chunk& chunk,
                                        const ChannelSide& side)
      : p_(p), chunk_(chunk), side_(side) {}

  __device__ __forceinline__ void fetch(int panel) {
    fetch_tokens<kQuads>(reads_, p_, side_.reads, chunk_, panel);
    fetch_tokens<kQuads>(writes_, p_, side_.writes, chunk_, panel);
  }
  /// Loads them times their decays; returns whether the chunk is strong in any of their channels.
  __device__ __forceinline__ bool load_decayed(GatedScoreMemory& memory, int panel) {
    PanelGates<Own, 1> gates(p_, side_, chunk_, panel * kPanelChannels);
    const bool strong = scan_channels<Own>(memory.channels, memory.sums, gates);
    fetch(panel);  // not sooner: gates have taken the registers
    decay_tokens(reads_, writes_, 0, memory.channels.logs);
    return strong;
  }
  __device__ __forceinline__ void store(ScoreMemory& memory, const Panel& reads,
                                        const Panel& writes) const {
    reads_.store(reads, memory.panels[0]);
    writes_.store(writes, memory.panels[0]);
  }

 private:
  const BackwardParams& p_;
  const Chunk& chunk_;
  const ChannelSide& side_;
  LoadedPanel<Own> reads_;
  LoadedPanel<Own> writes_;
};

/// Adds the products of what reads with what writes, over the channels of panels of a side; returns
/// whether the chunk is strong in any of these.
template <bool kGated, bool kQuads, class Memory>
__device__ __forceinline__ bool add_products(Product<Own>& scores, const BackwardParams& p,
                                             const Chunk& chunk, const ChannelSide& side,
                                             const PanelRange& panels, Memory& memory) {
  SideTokens<kQuads> tokens(p, chunk, side);
  bool strong = false;
  if (!kGated && panels.first < panels.end) tokens.fetch(panels.first);
#pragma unroll 1
  for (int panel = panels.first; panel < panels.end; ++panel) {
    const int stage = panel % kStages;
    const Panel a = panel_at(memory.panels[0], 2 * stage);
    const Panel b = panel_at(memory.panels[0], 2 * stage + 1);
    if constexpr (kGated) strong = tokens.load_decayed(memory, panel) || strong;
    tokens.store(memory, a, b);
    __syncthreads();  // the panels are there, their decays are done with
    if (!kGated && panel + 1 < panels.end) tokens.fetch(panel + 1);
    add_scores<Own>(scores, a, b);
  }
  __syncthreads();  // the panels are done with
  return strong;
}

/// Copies a panel of shared memory to where scores are kept.
__device__ __forceinline__ void keep(std::byte (&to)[kPanelBytes], const std::byte* panel) {
  constexpr int kVectors = kPanelBytes / static_cast<int>(sizeof(uint4));
#pragma unroll
  for (int first = 0; first < kVectors; first += Own::kThreads) {
    const int at = first + static_cast<int>(threadIdx.x);
    reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(panel)[at];
  }
}

__device__ __forceinline__ void keep_gate_parts(const BackwardParams& p, const Chunk& chunk,
                                                const GateMemory<Own>& memory) {
  if (threadIdx.x >= kTokens) return;
  const auto token = static_cast<int>(threadIdx.x);
  GateParts& to = gate_parts_of(p, chunk)[parts_of_gates(p.keys.channels) - 1];
  to.reads[token] = 0.0F;
  to.behind[token] =
      sum_of_parts(memory.score_columns, token) - sum_of_parts(memory.score_rows, token);
  if (token == 0) to.states = 0.0F;
}

/// Keeps the products as scores, decayed where the channels' operands were not.
template <Gated kGated>
__device__ __forceinline__ void keep_scores(Scores<Own>& scores, const BackwardParams& p,
                                            const Chunk& chunk, ScoreMemory& memory,
                                            ChunkScores& to) {
  GateTerms<Own> gates;
  scores.decay(gates, [&](int row, int column) {
    return kGated == Gated::kNone ? p.scale * memory.decays.between(row, column) : p.scale;
  });
  if (kGated != Gated::kNone) take_diagonal<Own>(scores.values, to.value_diagonal);
  if (kGated == Gated::kValues) take_diagonal<Own>(scores.keys, to.key_diagonal);
  store_scores<Own>(panel_at(memory.panels[0], 0), scores.keys);
  store_scores<Own>(panel_at(memory.panels[0], 1), scores.values);
  store_gate_terms<Own>(memory.gates, gates);
  __syncthreads();  // the scores and what gates have of them are there
  keep(to.keys, memory.panels[0]);
  keep(to.values, memory.panels[1]);
  if (wants_shared_gates(p)) keep_gate_parts(p, chunk, memory.gates);
}

/// grid: score_blocks x heads x chunks.
template <Gated kGated, bool kQuads>
__global__ __launch_bounds__(Own::kThreads,
                             2) void chunk_scores(const __grid_constant__ BackwardParams p) {
  using Memory = std::conditional_t<kGated == Gated::kNone, ScoreMemory, GatedScoreMemory>;
  extern __shared__ __align__(128) std::byte shared[];
  auto& memory = *reinterpret_cast<Memory*>(shared);
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  const std::int64_t number = quotient(block_number(), p.score_blocks);
  const auto own = static_cast<int>(block_number() - number * p.score_blocks);
  if (threadIdx.x == 0) {
    has_work = find_chunk(p, number, chunk);
    if (!has_work && chunk.number < p.chunks) {
      p.scores[chunk.number * p.heads + chunk.head].strong = 0;
    }
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  if constexpr (kGated == Gated::kNone) {
    TokenDecayScan scan(p, chunk.place.sequence, chunk.head);
    if (scan.is_mine()) {
      scan.fetch(chunk.place);
      scan.sum(memory.decays);
    }
  }
  Scores<Own> scores;
  clear(scores.keys);
  clear(scores.values);
  const PanelShare share(p, own);
  bool strong = add_products<kGated != Gated::kNone, kQuads>(scores.keys, p, chunk, p.keys,
                                                             share.keys, memory);
  strong = add_products<kGated == Gated::kValues, kQuads>(scores.values, p, chunk, p.values,
                                                          share.values, memory) ||
           strong;
  if (p.score_blocks > 1 && !gather_parts(scores, strong, p, chunk, share)) return;
  ChunkScores& to = p.scores[chunk.number * p.heads + chunk.head];
  if (threadIdx.x == 0) to.strong = strong ? 1 : 0;
  if (!strong) keep_scores<kGated>(scores, p, chunk, memory, to);
}

constexpr int kChunksOfBlock = 8;  // a warp each

/// grid: heads x chunks, so many of them a block.
__global__ __launch_bounds__(kChunksOfBlock* kWarpSize) void sum_gate_parts(
    const __grid_constant__ BackwardParams p) {
  const std::int64_t number = block_number() * kChunksOfBlock + threadIdx.x / kWarpSize;
  Chunk chunk;
  if (!find_chunk(p, number, chunk)) {
    if (p.gamma_terms != nullptr && chunk.number < p.chunks && !p.adds_gates) {
      p.gamma_terms[chunk.number * p.heads + chunk.head] = 0.0F;
    }
    return;
  }
  if (p.scores[chunk.number * p.heads + chunk.head].strong != 0) return;
  const GateParts* const parts = gate_parts_of(p, chunk);
  const int first = static_cast<int>(threadIdx.x) % kWarpSize * 2;
  float reads[2]{};
  float behind[2]{};
  float states = 0.0F;
  for (int part = 0; part < parts_of_gates(p.keys.channels); ++part) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      reads[e] += parts[part].reads[first + e];
      behind[e] += parts[part].behind[first + e];
    }
    states += parts[part].states;
  }
  store_shared_gates(p, chunk, gate_gradients(reads, behind, states), p.adds_gates);
}

template <Gated kGated>
void launch_scores(const BackwardParams& p, cudaStream_t stream) {
  using Memory = std::conditional_t<kGated == Gated::kNone, ScoreMemory, GatedScoreMemory>;
  if (p.score_blocks > 1) {
    const std::int64_t bytes = p.chunks * p.heads * std::int64_t{sizeof(unsigned)};
    check(cudaMemsetAsync(p.score_blocks_done, 0, static_cast<std::size_t>(bytes), stream));
  }
  with_value<false, true>(p.quads, [&]<bool kQuads>() {
    launch<chunk_scores<kGated, kQuads>>(
        {.grid = grid_of(p.heads * p.walked_chunks() * p.score_blocks),
         .block = Own::kThreads,
         .shared_bytes = sizeof(Memory)},
        stream, p);
  });
}

}  // namespace chunk_scores_kernels

void launch_chunk_scores(const BackwardParams& p, cudaStream_t stream) {
  if (p.values.gates.exist) {
    launch_scores<Gated::kValues>(p, stream);
  } else if (p.keys.gates.exist) {
    launch_scores<Gated::kKeys>(p, stream);
  } else {
    launch_scores<Gated::kNone>(p, stream);
  }
}

void launch_gate_sums(const BackwardParams& p, cudaStream_t stream) {
  if (p.dg.data == nullptr && p.gamma_terms == nullptr) return;
  launch<sum_gate_parts>({.grid = grid_of(ceil_div(p.heads * p.walked_chunks(), kChunksOfBlock)),
                          .block = kChunksOfBlock * kWarpSize},
                         stream, p);
}

}  // namespace attune::cuda::chunk_mma::backward
