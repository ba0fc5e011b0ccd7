// Linear attention with a decay for every channel, on the tensor cores that every GPU from sm_80 on
// has.
//
// A block has one segment of one head and some of its value channels, and walks the segment in
// chunks of 32 tokens. Some of its warps are a chunk ahead of the others: they sum the gates, and
// make q', k' and P of operands.cuh. The others keep the state in registers, make outputs as
// keeper.cuh says, and copy what comes next, as they have less to do. Between chunks, decays are
// powers of two, so a state is never rounded by them.
//
// There are two of these kernels: on mma.sync, and on the wgmma of sm_90a (keeper_wgmma.cuh).
//
// Source: Yang et al., "Gated Linear Attention Transformers", arXiv:2312.06635, section 4 (the
// chunks); integer references and the transposed state are our own.
#pragma once

#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/ptx.cuh"
#include "keeper_wgmma.cuh"
#include "role_signals.cuh"
#include "segments.cuh"

namespace attune::cuda::gla_mma {

/// What makes operands.
template <class T, class Shape, bool kWithOutputs>
__device__ __forceinline__ void make_operands(std::byte* slots, Shared<Shape>& shared,
                                              const RoleSignals<Shape>& signals, const Params& p,
                                              const Walk& walk) {
  OperandMaker<T, Shape, kWithOutputs> maker(p);
  int number = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const Slot<Shape> slot(slots + number * Shape::kSlotBytes);
    signals.template wait<Signal::kRead>(chunk);
    maker.make(slot, shared.handovers[chunk % 2], shared, shared.common_gates[chunk % 2]);
    if constexpr (Shape::kProducts == Products::kWgmma) async_proxy_fence();
    signals.template tell<Signal::kMade>(chunk);
    if (++number == p.stages) number = 0;
  }
  maker.finish(shared, p, walk);
}

/// Chunks on their way: all but the newest stages - 3 have arrived.
__device__ __forceinline__ void wait_for_copies(int stages) {
  if (stages == 3) {
    copy_async_wait<0>();
  } else if (stages == 4) {
    copy_async_wait<1>();
  } else {
    copy_async_wait<2>();
  }
}

/// What keeps the state. Copies are begun stages - 1 chunks ahead, two of which the makers may be
/// at: into the slot of the chunk before, which all have left when operands of this one are there.
template <class T, class Shape, bool kWithOutputs>
__device__ __forceinline__ void keep_state(States<Shape>& states, std::byte* slots,
                                           Shared<Shape>& shared, const RoleSignals<Shape>& signals,
                                           const Params& p, const Walk& walk) {
  OutputRows<T, Shape> rows(p, walk);
  const auto slot_at = [&](int number) { return Slot<Shape>(slots + number * Shape::kSlotBytes); };
  Loader<T, Shape, kWithOutputs> loader(p, walk);
  CommonGate<T, Shape::kChunk> common(p, walk);
  common.fetch(walk, 0);
  const auto release = [&](int chunk) {  // to the makers
    if (chunk >= walk.chunks) return;
    common.put(shared.common_gates[chunk % 2]);
    common.fetch(walk, chunk + 1);
    wait_for_copies(p.stages);
    signals.template tell<Signal::kRead>(chunk);
  };
  for (int chunk = 0; chunk < p.stages - 1; ++chunk) loader.load(slot_at(chunk), walk, chunk);
  release(0);
  release(1);
  int number = 0;
  int loading = p.stages - 1;
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const Slot<Shape> slot = slot_at(number);
    TileOutputs<Shape> outputs;
    signals.template wait<Signal::kMade>(chunk);
    loader.load(slot_at(loading), walk, chunk + p.stages - 1);
    const Handover<Shape>& from = shared.handovers[chunk % 2];
    if constexpr (Shape::kProducts == Products::kWgmma) {
#if ATTUNE_SM90A_CODE
      advance_by_wgmma<T, Shape, kWithOutputs>(states, outputs, slot, from);
#endif
    } else {
      advance<T, Shape, kWithOutputs>(states, outputs, slot, from);
    }
    if constexpr (kWithOutputs) rows.store(outputs, slot, walk, chunk);
    release(chunk + 2);
    loading = number;
    if (++number == p.stages) number = 0;
  }
}

/// Walks a segment, or a piece of one to find what it adds to the state. make() makes the walk,
/// which would take registers if it were kept.
template <class T, class Shape, bool kWithOutputs, class MakeWalk>
__device__ __forceinline__ void walk_tokens(std::byte* slots, Shared<Shape>& shared,
                                            const RoleSignals<Shape>& signals, const Params& p,
                                            MakeWalk&& make) {
  const Walk walk = make();
  if (threadIdx.x >= Shape::kKeeperThreads) {
    make_operands<T, Shape, kWithOutputs>(slots, shared, signals, p, walk);
    signals.template tell<Signal::kDone>(0);
    return;
  }
  States<Shape> states;
  if constexpr (kWithOutputs) {
    load_start<Shape>(states, p, walk);
  } else if (walk.segment == 0) {
    load_initial_states<Shape>(states, p, walk);
    store_slot<Shape>(states, p, walk, initial_slot(p, walk));
  } else {
#pragma unroll
    for (auto& state : states) clear<Shape>(state);
  }
  keep_state<T, Shape, kWithOutputs>(states, slots, shared, signals, p, walk);
  signals.template wait<Signal::kDone>(0);
  undo_reference<Shape>(states, shared);
  const Walk again = make();
  if constexpr (!kWithOutputs) {
    store_slot<Shape>(states, p, again, state_slot(p, again, again.segment));
  } else if (again.segment == p.segments - 1) {
    store_final_states<Shape>(states, p, again);
  }
}

inline constexpr int kPieceBarrier = 8;  // all threads of a block are done with a piece

template <class T, class Shape, bool kWithOutputs>
__device__ __forceinline__ void walk_block(const Params& p) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Shape>*>(memory + p.stages * Shape::kSlotBytes);
  const RoleSignals<Shape> signals(shared);
  if constexpr (kWithOutputs) {
    walk_tokens<T, Shape, true>(memory, shared, signals, p,
                                [&] { return make_walk<Shape>(p, p.segments); });
  } else {
    const auto head_walk = [&] { return make_walk<Shape>(p, first_launch_blocks(p.segments)); };
    const int pieces = pieces_of_segment(p.segments);
    const int first = head_walk().segment * pieces - (pieces - 1);
    const int end = min(first + pieces, pieces * (p.segments - 1));
#pragma unroll 1
    for (int piece = max(first, 0); piece < end; ++piece) {
      walk_tokens<T, Shape, false>(memory, shared, signals.of_piece(piece % kMostPieces), p,
                                   [&] { return walk_of_piece<Shape>(p, head_walk(), piece); });
      block_barrier_sync<kPieceBarrier>();
    }
  }
}

/// grid: value tiles x segments x heads x sequences; without outputs, x first_launch_blocks().
template <class T, class Shape, bool kWithOutputs>
__global__ __launch_bounds__(Shape::kBlockThreads, Shape::kResidentBlocks) void walk_chunks(
    const __grid_constant__ Params p) {
  if constexpr (Shape::kProducts == Products::kMma || ATTUNE_SM90A_CODE) {
    walk_block<T, Shape, kWithOutputs>(p);
  }
}

inline unsigned block_count(const Params& params, int segments) {
  return static_cast<unsigned>(params.sequence_count * params.heads * params.value_tiles *
                               segments);
}

template <class T, Gated kGated, Products kProducts>
void launch_gla_mma(const Params& params, const GlaMmaConfig& config, cudaStream_t stream) {
  const auto launch_shape = [&]<class Shape>() {
    const auto launch_walk = [&]<bool kWithOutputs>(int segments) {
      launch<walk_chunks<T, Shape, kWithOutputs>>(
          {.grid = block_count(params, segments),
           .block = Shape::kBlockThreads,
           .shared_bytes = shared_bytes<Shape>(params.stages)},
          stream, params);
    };
    if (params.segments > 1) {
      launch_walk.template operator()<false>(first_launch_blocks(params.segments));
    }
    launch_walk.template operator()<true>(params.segments);
  };
  with_shape<kProducts, kGated>(padded_keys(params.key_channels), config.values, launch_shape);
}

}  // namespace attune::cuda::gla_mma
