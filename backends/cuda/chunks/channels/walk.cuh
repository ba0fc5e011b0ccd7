// The kernel of linear attention with a decay for every channel.
//
// A block has one segment of one head and some of its value channels, and walks the segment in
// chunks of 32 tokens. The operand warps are a chunk ahead of the state warps: they sum the gates,
// and make q', k' and P of operands.cuh. The state warps have the state in registers, make outputs,
// and copy what comes next, as they have less to do. Between chunks, decays are powers of two, so a
// state is never rounded by them.
//
// What the state warps do of a chunk is Advance::run(): on mma.sync in cuda.gla_mma, on the wgmma
// of sm_90a in cuda.gla_wgmma.
//
// Source: Yang et al., "Gated Linear Attention Transformers", arXiv:2312.06635, section 4 (the
// chunks); integer references and the transposed state are our own.
#pragma once

#include "cuda/chunks/channels/late_starts.cuh"
#include "cuda/chunks/channels/output_rows.cuh"
#include "cuda/chunks/channels/segment_states.cuh"
#include "cuda/chunks/channels/signals.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::channels {

/// Whether the state behind a chunk is one of those that may be kept as snapshots.
template <class Shape>
__device__ __forceinline__ bool may_be_kept(const Params& p, const Walk& walk, int chunk) {
  const int tokens = walk.skipped + (chunk + 1) * Shape::kChunk;
  return tokens % static_cast<int>(p.snapshots.every) == 0;
}

/// What walks have instances for: to look for parts takes registers of those that have none.
enum class WalkedIn {
  kSegments,
  kParts,       // packed sequences, cut by their lengths
  kSnapshots,   // segments, and states may be kept on the way
  kLateStarts,  // segments or parts, what they start from is added later (late_starts.hpp)
};
inline constexpr WalkedIn kWalkedIn[] = {WalkedIn::kSegments, WalkedIn::kParts,
                                         WalkedIn::kSnapshots};
inline WalkedIn walked_in(const Params& p) {
  if (p.snapshots.every > 0) return WalkedIn::kSnapshots;
  return p.parts.tokens > 0 ? WalkedIn::kParts : WalkedIn::kSegments;
}

/// The work of the operand warps.
template <class T, class Shape, bool kWithOutputs, WalkedIn kIn>
__device__ __forceinline__ void make_operands(std::byte* stages, Shared<Shape>& shared,
                                              const RoleSignals<Shape>& signals, const Params& p,
                                              const Walk& walk) {
  constexpr bool kKeeps = kIn == WalkedIn::kSnapshots;
  constexpr bool kLate = kIn == WalkedIn::kLateStarts;
  OperandWarps<T, Shape, kWithOutputs, !kWithOutputs || kLate> warps(p);
  int number = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const Stage<Shape> stage(stages + number * Shape::kStageBytes);
    signals.template wait<Signal::kRead>(chunk);
    if constexpr (kLate) warps.put_reached(shared.reached[chunk % 2], p, walk);
    warps.make(stage, shared.operands[chunk % 2], shared, shared.common_gates[chunk % 2]);
    if constexpr (kKeeps) {
      if (may_be_kept<Shape>(p, walk, chunk)) warps.put_rests(shared);
    }
    if constexpr (Shape::kProducts == Products::kWgmma) async_proxy_fence();
    signals.template tell<Signal::kMade>(chunk);
    if (++number == p.stages) number = 0;
  }
  if constexpr (kKeeps) signals.template wait<Signal::kRead>(walk.chunks);
  warps.finish(shared, p, walk);
}

/// Waits until all chunks but the newest `stages - kFewestStages` have arrived; with more stages
/// than named here, until all but two have.
__device__ __forceinline__ void wait_for_copies(int stages) {
  if (stages == kFewestStages) {
    copy_async_wait<0>();
  } else if (stages == kFewestStages + 1) {
    copy_async_wait<1>();
  } else {
    copy_async_wait<2>();
  }
}

/// The work of the state warps. Copies are begun stages - 1 chunks ahead, two of which the operand
/// warps may be at: into the stage of the chunk before, which all have left when operands of this
/// one are there. Snapshots are stored before the operand warps may say what a later state lacks.
template <class T, class Shape, bool kWithOutputs, WalkedIn kIn, class Advance>
__device__ __forceinline__ void walk_states(States<Shape>& states, std::byte* stages,
                                            Shared<Shape>& shared,
                                            const RoleSignals<Shape>& signals, const Params& p,
                                            const Walk& walk) {
  constexpr bool kKeeps = kIn == WalkedIn::kSnapshots;
  OutputRows<T, Shape> rows(p, walk);
  const auto stage_at = [&](int number) {
    return Stage<Shape>(stages + number * Shape::kStageBytes);
  };
  Loader<T, Shape, kWithOutputs> loader(p, walk);
  CommonGate<T, Shape::kChunk> common(p, walk);
  common.fetch(walk, 0);
  const auto release = [&](int chunk) {  // to the operand warps
    if (chunk >= walk.chunks + (kKeeps ? 1 : 0)) return;
    if (chunk < walk.chunks) {
      common.put(shared.common_gates[chunk % 2]);
      common.fetch(walk, chunk + 1);
      wait_for_copies(p.stages);
      constexpr bool kReadsCopies = Shape::kProducts == Products::kWgmma && !Shape::kKeysDecay;
      if constexpr (kReadsCopies) async_proxy_fence();  // q and k, as they are
    }
    signals.template tell<Signal::kRead>(chunk);
  };
  for (int chunk = 0; chunk < p.stages - 1; ++chunk) loader.load(stage_at(chunk), walk, chunk);
  release(0);
  release(1);
  int number = 0;
  int loading = p.stages - 1;
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const Stage<Shape> stage = stage_at(number);
    TileOutputs<Shape> outputs;
    signals.template wait<Signal::kMade>(chunk);
    loader.load(stage_at(loading), walk, chunk + p.stages - 1);
    const ChunkOperands<Shape>& from = shared.operands[chunk % 2];
    Advance::template run<T, Shape, kWithOutputs>(states, outputs, stage, from, p);
    if constexpr (kIn == WalkedIn::kLateStarts) {
      if (is_reached(shared, chunk)) KeptChunk<Shape>(p, shared, chunk).store(stage, from);
    }
    if constexpr (kWithOutputs) rows.store(outputs, stage, walk, chunk);
    if constexpr (kKeeps) {
      if (may_be_kept<Shape>(p, walk, chunk)) {  // to make the walk again waits for memory
        const Walk again = make_walk<Shape, false>(p, p.segments);
        store_snapshot<Shape>(states, shared, p, again, snapshot_behind<Shape>(p, again, chunk));
      }
    }
    release(chunk + 2);
    loading = number;
    if (++number == p.stages) number = 0;
  }
}

/// Which warps code is for.
enum class Role { kAll, kOperands, kStates };

/// Walks a segment, or a subsegment of one to find what it adds to the state. make() makes the
/// walk, which would take registers if it were kept.
template <class T, class Shape, bool kWithOutputs, WalkedIn kIn, Role kRole, class Advance,
          class MakeWalk>
__device__ __forceinline__ void walk_tokens(std::byte* stages, Shared<Shape>& shared,
                                            const RoleSignals<Shape>& signals, const Params& p,
                                            MakeWalk&& make) {
  const Walk walk = make();
  if (kRole == Role::kOperands || (kRole == Role::kAll && threadIdx.x >= Shape::kStateThreads)) {
    make_operands<T, Shape, kWithOutputs, kIn>(stages, shared, signals, p, walk);
    signals.template tell<Signal::kDone>(0);
    return;
  }
  States<Shape> states;
  constexpr bool kLate = kIn == WalkedIn::kLateStarts;
  if constexpr (kLate) {
    if (threadIdx.x == 0) shared.first_kept = first_kept<Shape>(p, walk);
    if (walk.segment == 0) {
      load_initial_states<Shape>(states, p, walk);
    } else {
#pragma unroll
      for (auto& state : states) clear<Shape>(state);
    }
  } else if constexpr (kWithOutputs) {
    load_start<Shape>(states, p, walk);
  } else if (walk.segment == 0 && !p.sums_all()) {
    load_initial_states<Shape>(states, p, walk);
    save_states<Shape>(states, p, walk, saved_initial_index(p, walk));
  } else {
#pragma unroll
    for (auto& state : states) clear<Shape>(state);
  }
  walk_states<T, Shape, kWithOutputs, kIn, Advance>(states, stages, shared, signals, p, walk);
  signals.template wait<Signal::kDone>(0);
  undo_reference<Shape>(states, shared);
  const Walk again = make();
  if constexpr (kLate) {
    join_segments_late<T, Shape, Advance>(states, stages, shared, p, again);
  } else if constexpr (kWithOutputs) {
    store_states<Shape>(states, p, again, final_behind(p, again));
  } else {
    save_states<Shape>(states, p, again, sum_index(p, again, again.segment));
  }
}

inline constexpr int kSubsegmentBarrier = 8;  // all threads of a block are done with a subsegment

/// make_walk() in a grid that has slices of key channels along y.
template <class Shape, bool kMayBeParts>
__device__ __forceinline__ Walk make_sliced_walk(const Params& p, int segments) {
  Walk walk = make_walk<Shape, kMayBeParts>(p, segments);
  walk.slice = static_cast<int>(blockIdx.y);
  return walk;
}

/// Calls visit(signals, make) for what a block walks, which make() makes: a segment, or without
/// outputs one or two subsegments.
template <class Shape, bool kWithOutputs, bool kParts, class Visit>
__device__ __forceinline__ void for_each_walk(const RoleSignals<Shape>& signals, const Params& p,
                                              Visit&& visit) {
  if constexpr (kWithOutputs) {
    const auto make = [&] { return make_sliced_walk<Shape, kParts>(p, p.segments); };
    if (p.sequences.most_left_out > 0 && make().span.is_left_out) return;
    if (kParts && !has_segment(make())) return;
    visit(signals, make);
  } else {
    const auto head_walk = [&] {
      return make_sliced_walk<Shape, kParts>(p, first_launch_blocks(p));
    };
    const Walk head = head_walk();
    if (p.sequences.most_left_out > 0 && head.span.is_left_out) return;
    if (kParts && !has_segment(head)) return;
    const int subsegments = p.subsegments;
    const int summed = head.segments - (p.sums_all() ? 0 : 1);
    const int first = head.segment * subsegments - (subsegments - 1);
    const int end = min(first + subsegments, subsegments * summed);
#pragma unroll 1
    for (int subsegment = max(first, 0); subsegment < end; ++subsegment) {
      visit(signals.of_subsegment(subsegment % kMostSubsegments),
            [&] { return walk_of_subsegment<Shape>(p, head_walk(), subsegment); });
      block_barrier_sync<kSubsegmentBarrier>();
    }
  }
}

template <class T, class Shape, bool kWithOutputs, WalkedIn kIn, class Advance>
__device__ __forceinline__ void walk_block(const Params& p) {
  constexpr bool kParts = kIn == WalkedIn::kParts || kIn == WalkedIn::kLateStarts;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<Shape>*>(memory + p.stages * Shape::kStageBytes);
  const RoleSignals<Shape> signals(shared);
  if constexpr (kWithOutputs) {
#if __CUDA_ARCH__ >= 900
    dependents_launch();  // single tokens, which run beside this
#endif
    TokenView planes = p.o;
    if (p.slices > 1) planes.head = p.output_plane;
    clear_rows_behind<T>(p.sequences, p.sequence_count, planes, p.heads * p.slices,
                         p.value_channels, static_cast<int>(threadIdx.x), Shape::kBlockThreads);
  }
  const auto walk_as = [&]<Role kRole>() {
    for_each_walk<Shape, kWithOutputs, kParts>(
        signals, p, [&](const RoleSignals<Shape>& own, auto&& make) {
          walk_tokens<T, Shape, kWithOutputs, kIn, kRole, Advance>(memory, shared, own, p, make);
        });
  };
  if constexpr (!Shape::kMovesRegisters) {
    walk_as.template operator()<Role::kAll>();
  } else if (threadIdx.x < Shape::kStateThreads) {
    registers_grow<Shape::kStateRegisters>();
    walk_as.template operator()<Role::kStates>();
  } else {
    registers_shrink<Shape::kOperandRegisters>();
    walk_as.template operator()<Role::kOperands>();
  }
  // What comes next waits for this launch alone.
  if constexpr (kIn == WalkedIn::kLateStarts) dependency_wait();
}

/// grid: value tiles x segments x heads x sequences, slices; without outputs, x first_launch_blocks().
/// Or value tiles x heads x parts, slices.
template <class T, class Shape, bool kWithOutputs, WalkedIn kIn, class Advance>
__global__ __launch_bounds__(Shape::kBlockThreads, Shape::kResidentBlocks) void walk_chunks(
    const __grid_constant__ Params p) {
  if constexpr (Shape::kProducts == Products::kMma || ATTUNE_SM90A_CODE) {
    walk_block<T, Shape, kWithOutputs, kIn, Advance>(p);
  }
}

}  // namespace attune::cuda::channels
