// One launch of the chunked backward kernel: tensors, sizes and how they are cut, no behaviour.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::chunk::backward {

/// Where in a thread's scratch memory what lies; offsets in floats, multiples of a cache line.
/// Channels are padded to whole panels.
struct Scratch {
  /// What both sides have: the channels of K with q, k and their decays, those of V with do, v and
  /// gv. [chunk, channels] each, but for the rows.
  struct Side {
    std::int64_t decayed_reads = 0;   // since the start of the chunk
    std::int64_t decayed_writes = 0;  // until its end
    std::int64_t local_reads = 0;     // since the start of a block, see channel_terms.inl.hpp
    std::int64_t local_writes = 0;
    std::int64_t terms = 0;       // [T, channels] q dq or do o, when channels have gates
    std::int64_t sums = 0;        // dq or o, dk or dv
    std::int64_t transposed = 0;  // [channels, chunk]
    std::int64_t carries = 0;     // [channels], as the next
    std::int64_t gate = 0;        // the gradient of the gates at the current token
    std::int64_t group_sum = 0;   // [T, channels] dk or dv of the heads so far, with a group
  };
  /// What a chunk's rows are packed into; offsets from where that chunk's begin. The decays are
  /// there where channels have gates.
  struct PackedSide {
    std::int64_t reads = 0;   // q or do
    std::int64_t writes = 0;  // k or v
    std::int64_t decays = 0;
    std::int64_t block_decays = 0;  // [blocks, channels]
    std::int64_t totals = 0;        // [channels]
  };
  struct Packed {
    PackedSide keys, values;
    std::int64_t shared_decays = 0;  // SharedDecay's, where channels of K share them
    std::int64_t size = 0;
  };
  Side keys, values;
  Packed packed_chunk;
  std::int64_t packed = 0;       // [kept chunks + 1] of packed_chunk
  std::int64_t row_totals = 0;   // [V]: what rows of a state decay by over a chunk
  std::int64_t state = 0;        // [V, K], as the next
  std::int64_t dstate = 0;       // the gradient of the loss with respect to the state
  std::int64_t checkpoints = 0;  // [segments - 1, V, K], when there are gates
  std::int64_t pairs = 0;        // [T, chunk] those of do and v
  std::int64_t key_pairs = 0;    // [chunk, chunk], as the next
  std::int64_t ratios = 0;       // of no decays
  std::int64_t dots = 0;         // [T] q dq, with decays that all channels share
  std::int64_t size = 0;
};

struct Params : BackwardParams {
  std::int64_t chunk = 16;
  std::int64_t segment_tokens = 1;  // tokens between two checkpoints, a multiple of chunk
  std::int64_t kept_chunks = 0;     // of the end of a sequence, packed once for both sweeps
  bool stream = false;              // gradients are written past the caches
  std::int64_t group_parts = 1;     // divides the heads of a group
  /// [kv heads, parts, chunks, chunk, K + V] dk and dv of each part, with more than one.
  float* partial_sums = nullptr;
  std::int64_t partial_chunks = 0;  // of all sequences
  Scratch scratch;
};

/// Chunks that one task of `sum` adds up.
inline constexpr std::int64_t kChunksOfSum = 8;

/// The kernel as one instruction set has it. instance<kIsa>() is defined by the unit that CMake
/// writes for `kIsa`.
struct Instance {
  /// Runs tasks [first, last) of (sequence, kv head, part), part fastest. `scratch` is aligned to
  /// 64 bytes and used by no other thread; it need not be initialised.
  void (*run)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
  /// Adds the partial sums of all parts up, once all of the tasks above are done: tasks
  /// [first, last) of (sequence, kv head, kChunksOfSum chunks of the longest sequence), chunks
  /// fastest.
  void (*sum)(const Params& params, std::int64_t first, std::int64_t last);
};
template <Isa kIsa>
Instance instance();

}  // namespace attune::cpu::simd::chunk::backward
