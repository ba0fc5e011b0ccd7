// A block that makes the gradients of a panel of a chunk's keys or values (panel_walk.cuh): its work, its
// memory, and what of its panel's gates is for other blocks.
#pragma once

#include "cuda/chunk_mma/backward/panel_states.cuh"
#include "cuda/chunk_mma/backward/scores.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Its warps; two such blocks share a multiprocessor.
using PanelWarps = Warps<2, true>;
using PanelOctets = OwnOctets<PanelWarps::kThreads>;

/// Panels of its shared memory: tiles of states, of which the next two are on their way, and tokens. Of
/// what is there when all states are done with, any may be taken for something else.
struct PanelStages {
  static constexpr int kStates = 3;
  static constexpr int kTokenPanels = 2;
  std::byte panels[kStates + kTokenPanels][kPanelBytes];

  __device__ Panel at(int number) const { return panel_at(panels[0], number); }
  __device__ Panel state(int stage) const { return at(stage); }
  __device__ Panel tokens(int stage) const { return at(kStates + stage); }
};

/// Its chunk, its panel of keys or of values, and where what it walks is; in shared memory.
struct PanelWork {
  Chunk chunk;
  bool has_work = false;
  bool is_of_keys = false;
  int panel = 0;
  StateSource forward;
  StateSource back;
  HeadRows reads;  // the other side's tokens
  HeadRows writes;
};

template <class Memory>
struct PanelBlock {
  const BackwardParams& p;
  const PanelWork& work;
  const Chunk& chunk;
  Memory& memory;
  int panel;

  __device__ const ChunkScores& scores() const {
    return p.scores[chunk.number * p.heads + chunk.head];
  }
  /// Begins to copy P or R of the chunk's scores to a panel.
  __device__ __forceinline__ void fetch_scores(const std::byte (&from)[kPanelBytes],
                                               int number) const {
    constexpr int kBytes = 16;
    const std::uint32_t to = shared_address(memory.stages.panels[number]);
#pragma unroll
    for (int first = 0; first < kPanelBytes; first += PanelWarps::kThreads * kBytes) {
      const int byte = first + static_cast<int>(threadIdx.x) * kBytes;
      copy_async_16(to + byte, from + byte, true);
    }
    copy_async_commit();
  }
};

/// Stores what gradients of the gates that all channels share are made of, of a panel of keys.
template <class Block>
__device__ __forceinline__ void store_gate_parts(const Block& block,
                                                 const GateMemory<PanelWarps>& memory) {
  if (threadIdx.x >= kTokens) return;
  const auto token = static_cast<int>(threadIdx.x);
  GateParts& to = gate_parts_of(block.p, block.chunk)[block.panel];
  to.reads[token] = sum_of_parts(memory.reads, token);
  to.behind[token] = sum_of_parts(memory.writes, token);
  if (token > 0) return;
  float states = 0.0F;
  for (const float part : memory.states) states += part;
  to.states = states;
}

/// Where blocks of panels of keys and of values are among all of a launch.
enum class PanelOrder {
  kByChunk,  // those of a chunk follow each other: what they read of its states is in L2 then
  kBySide,   // all of keys, then all of values: both sides' code is more than the instruction cache
             // of neighbouring multiprocessors holds, which would wait for it half of the time
};

/// The work of a block, of panels of keys and of values x heads x chunks. Returns whether there is any.
template <PanelOrder kOrder>
__device__ __forceinline__ bool take_panel(const BackwardParams& p, PanelWork& work) {
  if (threadIdx.x == 0) {
    const int key_panels = panels_of(p.keys.channels);
    const int value_panels = panels_of(p.values.channels);
    const std::int64_t of_keys = p.walked_chunks() * p.heads * key_panels;
    const bool by_side = kOrder == PanelOrder::kBySide;
    const bool is_behind = by_side && block_number() >= of_keys;
    const std::int64_t block = block_number() - (is_behind ? of_keys : 0);
    const int panels = is_behind ? value_panels : by_side ? key_panels : key_panels + value_panels;
    const std::int64_t number = quotient(block, panels);
    const auto panel = static_cast<int>(block - number * panels) + (is_behind ? key_panels : 0);
    Chunk& chunk = work.chunk;
    work.is_of_keys = panel < key_panels;
    work.panel = work.is_of_keys ? panel : panel - key_panels;
    work.has_work = find_chunk(p, number, chunk);
    if (work.has_work) {
      const int strong =
          p.scores[chunk.number * p.heads + chunk.head].strong;  // on its way meanwhile
      const ChannelSide& others = work.is_of_keys ? p.values : p.keys;
      work.reads = HeadRows::of(p, others.walked_reads, chunk.place, chunk.head, 0);
      work.writes = HeadRows::of(p, others.walked_writes, chunk.place, chunk.head, 0);
      work.forward = StateSource::of(p, chunk, p.forward, chunk.adds_forward);
      work.back = StateSource::of(p, chunk, p.back, chunk.adds_back);
      work.has_work = strong == 0;
    }
  }
  __syncthreads();  // the block's work is known
  return work.has_work;
}

/// Of all chunks.
inline std::int64_t panel_blocks(const BackwardParams& p) {
  return std::int64_t{panels_of(p.keys.channels) + panels_of(p.values.channels)} * p.heads *
         p.walked_chunks();
}

}  // namespace attune::cuda::chunk_mma::backward
