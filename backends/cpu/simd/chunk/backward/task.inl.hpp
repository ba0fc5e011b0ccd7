// One query head of one sequence in the chunked backward pass: where its rows are and what it works
// in.
#pragma once

#include "backward_params.hpp"
#include "channel_terms.inl.hpp"
#include "cpu/simd/vector/prefetch.inl.hpp"
#include "cpu/simd/vector/task.inl.hpp"
#include "gate_gradients.inl.hpp"
#include "panel_product.inl.hpp"
#include "panel_rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

using simd::chunk::backward::Instance;
using simd::chunk::backward::kChunksOfSum;
using simd::chunk::backward::Params;
using simd::chunk::backward::Scratch;

// The channels of K or those of V.
struct ChunkSide {
  InputRows read_rows;   // q or do
  InputRows write_rows;  // k or v
  OutputRows dreads;     // dq; none for V, as o is not wanted
  OutputRows dwrites;    // dk or dv
  OutputRows dgates;     // dgk or dgv
  std::int64_t channels = 0;
  std::int64_t width = 0;  // the same in whole panels
  float scale = 1.0F;      // of what reads
  ChannelDecay decay;
  Panels reads, writes, decayed_reads, decayed_writes, local_reads, local_writes, sums;
  Panels transposed;  // [width, chunk]
  Scratch::PackedSide packed;
  float* gate = nullptr;
  float* terms = nullptr;  // [T, width] q dq or do o, where channels have gates
  float* group_sum = nullptr;
};

// Which of the heads that share dk and dv this is: they are added up in this order.
struct SumPlace {
  bool is_first = true;
  bool is_last = true;
  bool is_partial = false;  // the sum is not written to the caller's tensors but left behind
};

struct ChunkTask {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  std::int64_t segment_tokens = 0;
  std::int64_t kept_chunks = 0;
  bool stream = false;
  SumPlace place;
  ChunkSide keys, values;
  SharedDecay shared;
  bool has_gates = false;
  OutputRows dg;
  double* dgamma = nullptr;
  StateView<const float*> initial, dfinal;
  StateView<float*> dinitial;
  Panels state, dstate;  // [V, K]
  std::int64_t state_size = 0;
  float* packed = nullptr;
  std::int64_t packed_size = 0;
  std::int64_t packed_shared_decays = 0;
  float* row_totals = nullptr;
  float* checkpoints = nullptr;
  float* pairs = nullptr;
  Panels key_pairs;
  float* dots = nullptr;
  Prefetcher prefetcher{0};         // of the sweep that runs
  std::int64_t prefetch_lines = 0;  // between two calls of a product

  std::int64_t chunks() const { return (tokens + chunk - 1) / chunk; }
  std::int64_t token_of(std::int64_t index) const { return index * chunk; }
  std::int64_t present(std::int64_t index) const {
    const std::int64_t left = tokens - index * chunk;
    return left < chunk ? left : chunk;
  }
  TokenRange range(std::int64_t index) const {
    return {.first = index * chunk, .present = present(index), .chunk = chunk, .stream = stream};
  }
  Panels terms_of(const ChunkSide& side, std::int64_t index) const {
    return panels_of(side.terms + index * chunk * side.width, chunk);
  }
  Panels pairs_of(std::int64_t index) const {
    return panels_of(pairs + index * chunk * chunk, chunk);
  }
  // Chunks from this one on stay packed from the first sweep to the second.
  std::int64_t first_kept() const { return chunks() > kept_chunks ? chunks() - kept_chunks : 0; }
};

// Where the rows of chunk `index` are packed, or are to be.
inline void place_packed(ChunkTask& task, std::int64_t index) {
  const std::int64_t place = index < task.first_kept() ? 0 : index - task.first_kept() + 1;
  float* const chunk = task.packed + place * task.packed_size;
  for (ChunkSide* side : {&task.keys, &task.values}) {
    side->reads = panels_of(chunk + side->packed.reads, task.chunk);
    side->writes = panels_of(chunk + side->packed.writes, task.chunk);
    side->decay.decay = panels_of(chunk + side->packed.decays, task.chunk);
    side->decay.of_blocks = chunk + side->packed.block_decays;
    side->decay.total = chunk + side->packed.totals;
  }
  if (!task.shared.given) return;
  place_shared_decays(task.shared, chunk + task.packed_shared_decays, task.chunk);
}

inline ChunkSide chunk_side(const Scratch::Side& at, std::int64_t channels, std::int64_t chunk,
                            float* scratch) {
  const auto panels = [&](std::int64_t offset) { return panels_of(scratch + offset, chunk); };
  ChunkSide side;
  side.channels = channels;
  side.width = round_up_to_panels(channels);
  side.decayed_reads = panels(at.decayed_reads);
  side.decayed_writes = panels(at.decayed_writes);
  side.local_reads = panels(at.local_reads);
  side.local_writes = panels(at.local_writes);
  side.terms = scratch + at.terms;
  side.sums = panels(at.sums);
  side.transposed = panels_of(scratch + at.transposed, side.width);
  side.decay.carry = scratch + at.carries;
  side.gate = scratch + at.gate;
  side.group_sum = scratch + at.group_sum;
  return side;
}

inline ChunkSide key_chunks(const Params& p, const TaskRange& range, float* scratch) {
  const ForwardParams& f = p.forward;
  ChunkSide side = chunk_side(p.scratch.keys, f.key_dim, p.chunk, scratch);
  side.read_rows = rows_of<const char>(f.q, range, range.head, 0);
  side.write_rows = rows_of<const char>(f.k, range, range.kv_head, 0);
  side.decay.gates = rows_of<const char>(f.gk, range, range.head, 0);
  side.decay.given = f.gk.data != nullptr;
  side.dreads = rows_of<char>(p.dq, range, range.head, 0);
  side.dwrites = rows_of<char>(p.dk, range, range.kv_head, 0);
  side.dgates = rows_of<char>(p.dgk, range, range.head, 0);
  side.scale = f.scale;
  return side;
}

inline ChunkSide value_chunks(const Params& p, const TaskRange& range, float* scratch) {
  const ForwardParams& f = p.forward;
  ChunkSide side = chunk_side(p.scratch.values, f.value_dim, p.chunk, scratch);
  side.read_rows = rows_of<const char>(p.d_o, range, range.head, 0);
  side.write_rows = rows_of<const char>(f.v, range, range.kv_head, 0);
  side.decay.gates = rows_of<const char>(f.gv, range, range.head, 0);
  side.decay.given = f.gv.data != nullptr;
  side.decay.balance = balance_of(f, range, -1.0F);
  side.dwrites = rows_of<char>(p.dv, range, range.kv_head, 0);
  side.dgates = rows_of<char>(p.dgv, range, range.head, 0);
  return side;
}

inline SharedDecay shared_decay(const Params& p, const TaskRange& range, float* scratch) {
  const ForwardParams& f = p.forward;
  SharedDecay shared;
  shared.g = rows_of<const char>(f.g, range, range.head, 0);
  if (f.g_gamma) {
    shared.gamma =
        f.g_gamma[range.sequence * f.g_gamma_sequence_stride + range.head * f.g_gamma_head_stride];
  }
  shared.balance = balance_of(f, range, 1.0F);
  // With gk it is part of the channels' decays.
  shared.given = !f.gk.data && (f.g.data || f.g_gamma);
  shared.ratios = panels_of(scratch + p.scratch.ratios, p.chunk);
  return shared;
}

inline ChunkTask chunk_task(const Params& p, std::int64_t sequence, std::int64_t head,
                            float* scratch) {
  const ForwardParams& f = p.forward;
  const TaskRange range = head_range(f, sequence, head);
  ChunkTask task;
  task.tokens = range.tokens;
  task.chunk = p.chunk;
  task.segment_tokens = p.segment_tokens;
  task.kept_chunks = p.kept_chunks;
  task.stream = p.stream;
  task.keys = key_chunks(p, range, scratch);
  task.keys.packed = p.scratch.packed_chunk.keys;
  task.values = value_chunks(p, range, scratch);
  task.values.packed = p.scratch.packed_chunk.values;
  task.packed = scratch + p.scratch.packed;
  task.packed_size = p.scratch.packed_chunk.size;
  task.packed_shared_decays = p.scratch.packed_chunk.shared_decays;
  task.row_totals = scratch + p.scratch.row_totals;
  task.shared = shared_decay(p, range, scratch);
  task.has_gates = task.keys.decay.given || task.values.decay.given || task.shared.given;
  task.dg = rows_of<char>(p.dg, range, head, 0);
  if (p.dgamma) task.dgamma = p.dgamma + sequence * f.heads + head;
  task.initial = state_of(f.initial_state, range);
  task.dfinal = state_of(p.dfinal_state, range);
  task.dinitial = state_of(p.dinitial_state, range);
  task.state = panels_of(scratch + p.scratch.state, task.values.width);
  task.dstate = panels_of(scratch + p.scratch.dstate, task.values.width);
  task.state_size = task.keys.width * task.values.width;
  task.checkpoints = scratch + p.scratch.checkpoints;
  task.pairs = scratch + p.scratch.pairs;
  task.key_pairs = panels_of(scratch + p.scratch.key_pairs, p.chunk);
  task.dots = scratch + p.scratch.dots;
  return task;
}

// A caller's state and a [V, K] one in panels. What is padded, or not given, is zero.
[[gnu::noinline]] inline void read_state(const StateView<const float*>& from, const ChunkTask& task,
                                         const Panels& to) {
  for (std::int64_t i = 0; i < task.state_size; i += kLanes) store(to.data + i, F32{});
  if (!from.data) return;
  for (std::int64_t i = 0; i < task.keys.channels; ++i) {
    const float* const source = from.data + i * from.key_stride;
    float* const target = to.at(0, i);
    for (std::int64_t j = 0; j < task.values.channels; ++j) {
      target[j * kPanelWidth] = source[j * from.value_stride];
    }
  }
}

[[gnu::noinline]] inline void write_state(const Panels& from, const ChunkTask& task,
                                          const StateView<float*>& to) {
  if (!to.data) return;
  for (std::int64_t i = 0; i < task.keys.channels; ++i) {
    const float* const source = from.at(0, i);
    float* const target = to.data + i * to.key_stride;
    for (std::int64_t j = 0; j < task.values.channels; ++j) {
      target[j * to.value_stride] = source[j * kPanelWidth];
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
