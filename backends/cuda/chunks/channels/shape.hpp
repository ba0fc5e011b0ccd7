// The kernels with a decay for every channel as host code sees them: instances, their shared memory
// and what they are given.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/chunks/channels/late_starts.hpp"
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/summary_views.hpp"
#include "cuda/runtime/dispatch.hpp"

namespace attune::cuda::channels {

/// Which channels have decays of their own; part of a kernel's type.
enum class Gated { kKeys, kValues, kBoth };
constexpr bool keys_decay(Gated gated) { return gated != Gated::kValues; }
constexpr bool values_decay(Gated gated) { return gated != Gated::kKeys; }

/// What the state is multiplied by: mma.sync, or wgmma (sm_90a); part of a kernel's type.
enum class Products { kMma, kWgmma };

/// Warps of a block have one of two roles. The operand warps make operands of a chunk's tokens; the
/// state warps have the state in registers and copy what chunks need: as many, or with wgmma one
/// for each 16 value channels.
inline constexpr int kOperandWarps = 4;
inline constexpr int kOperandThreads = 32 * kOperandWarps;
constexpr int state_warps(Products products, int values) {
  return products == Products::kMma ? 4 : values / kValuesPerWarp;
}

/// Chunks that are in shared memory at least: the one at hand, and two that operand warps may be
/// at.
inline constexpr int kFewestStages = 3;

/// A first launch finds what segments but the last add to the state. Few of them are cut in two, so
/// that as many blocks as there are segments have the same work: the later subsegment of one and
/// the earlier subsegment of the next.
inline constexpr int kMostSubsegments = 2;
inline constexpr int kMostCutInTwo = 4;  // segments of a sequence
/// States saved in the workspace: of each subsegment, and the initial one.
constexpr int saved_states_of(int segments) {
  return (segments <= kMostCutInTwo ? kMostSubsegments : 1) * (segments - 1) + 1;
}

/// Whether instances have late starts (late_starts.hpp).
constexpr bool has_late_starts(Products products, Gated gated) {
  return products == Products::kWgmma && gated == Gated::kKeys;
}

/// A sum in a row of fp32 that neither lanes' rows nor their columns make share banks.
inline constexpr int kSumsPadding = 4;

constexpr int rounded_up(int bytes, int alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// One instance of the kernels. Sizes are those of shared memory.
template <int kKeyChannels, int kValueChannels, Gated kGatedSides, Products kProduct>
struct Shape {
  static constexpr int kKeys = kKeyChannels;
  static constexpr int kValues = kValueChannels;
  static constexpr bool kKeysDecay = keys_decay(kGatedSides);
  static constexpr bool kValuesDecay = values_decay(kGatedSides);
  static constexpr Products kProducts = kProduct;
  static constexpr bool kHasLateStarts = has_late_starts(kProduct, kGatedSides);
  static constexpr int kStateWarps = state_warps(kProducts, kValues);  // the block's first
  static constexpr int kStateThreads = 32 * kStateWarps;
  static constexpr int kBlockThreads = kStateThreads + kOperandThreads;
  static constexpr int kTiles = kValues / (kValuesPerWarp * kStateWarps);  // a warp's of 16 values
  static constexpr int kChunk = kKeysDecay && kValuesDecay && kKeys > 192 ? 16 : 32;  // tokens
  static constexpr int kThreads = kStateThreads;  // that load a tile
  static constexpr int kMostKeysOfTwo = kValuesDecay || kProducts == Products::kWgmma ? 64 : 128;
  static constexpr int kResidentBlocks =
      kTiles == 1 && kStateWarps == 4 && kKeys <= kMostKeysOfTwo ? 2 : 1;

  /// Wide blocks of wgmma have two warpgroups of states. Where the state takes more than an even
  /// share of the registers, operand warps leave it some of theirs.
  static constexpr bool kMovesRegisters = kStateWarps > 4 && (kKeys > 128 || kValuesDecay);
  static constexpr int kStateRegisters = !kValuesDecay ? 168 : kKeys > 192 ? 208 : 192;
  static constexpr int kOperandRegisters = !kValuesDecay ? 168 : kKeys > 192 ? 88 : 120;

  static constexpr int kPanelBytes = kChunk * kPanelRowBytes;
  static constexpr int kPanelAlignment = kProducts == Products::kWgmma ? 1024 : 128;  // of P
  static constexpr int kKeyTileBytes = kKeys / kPanelChannels * kPanelBytes;
  static constexpr int kValueTileBytes = kValues / kPanelChannels * kPanelBytes;
  static constexpr int kKeyGateRowBytes = kKeys * static_cast<int>(sizeof(float));
  static constexpr int kValueGateRowBytes =
      (kValues + kSumsPadding) * static_cast<int>(sizeof(float));
  static constexpr int kStageBytes = rounded_up(
      2 * kKeyTileBytes + kValueTileBytes + (kKeysDecay ? kChunk * kKeyGateRowBytes : 0) +
          (kValuesDecay ? kChunk * kValueGateRowBytes : 0),
      kPanelAlignment);
};

/// Neighbouring channels whose sums a thread has.
constexpr int channels_per_thread(int channels) { return channels < 128 ? 2 : 4; }
/// Runs of the chunk's tokens that a channel's sums are divided into, each a thread's.
constexpr int runs_of(int channels) {
  return channels_per_thread(channels) * kOperandThreads / channels;
}

/// What operand warps hand to state warps beside a chunk's tiles.
template <class Shape>
struct alignas(Shape::kPanelAlignment) ChunkOperands {
  std::byte scores[Shape::kPanelBytes];         // P
  float key_decays[Shape::kKeys];               // 2^r, r the step of the channel's reference
  std::uint32_t key_growths[Shape::kKeys / 2];  // 2^(c - r), pairs of operands
  float value_steps[Shape::kValues];            // r
  int strong;                                   // some |r| is too large for products
};

/// With ATTUNE_RACECHECK the roles of a block tell each other by these (signals.cuh).
#if defined(ATTUNE_RACECHECK) && ATTUNE_RACECHECK  // elsewhere 0 stands for undefined
inline constexpr bool kSharedRoleBarriers = true;
#else
inline constexpr bool kSharedRoleBarriers = false;
#endif
struct RoleBarriers {
  static constexpr int kCount = 6;
  std::uint64_t of[kCount];
};
struct NoRoleBarriers {};

/// A block's shared memory after its stages.
template <class Shape>
struct Shared {
  ChunkOperands<Shape> operands[2];
  float key_totals[runs_of(Shape::kKeys)][Shape::kKeys];
  float value_totals[runs_of(Shape::kValues)][Shape::kValues];
  float key_rests[Shape::kKeys];  // log2 of the state over what the last reference made of it
  float value_rests[Shape::kValues];
  float common_gates[2][Shape::kChunk];  // log2 of the decays that all channels share
  // Of a late start: whether it reaches channels of an operand warp in a chunk, and in how many chunks,
  // the first ones; and the number of the first of all.
  alignas(16) int reached[2][kOperandWarps];
  int kept[kOperandWarps];
  std::int64_t first_kept;
  [[no_unique_address]] std::conditional_t<
      kSharedRoleBarriers, std::array<RoleBarriers, kMostSubsegments>, NoRoleBarriers>
      role_barriers;
};

template <class Shape>
constexpr std::size_t shared_bytes(int stages) {
  return static_cast<std::size_t>(stages) * Shape::kStageBytes + sizeof(Shared<Shape>);
}

/// A gate per channel, and whether its rows start at multiples of 16 bytes.
struct ChannelGate {
  GateView view;
  bool aligned = true;
};

/// What is queued: all; or, where summaries of sequences are wanted, those, and later the walk from
/// the states that come to them. Then segments are not cut in two, the last ones are summed up as
/// well, and no sum has anything of the initial state.
enum class Part { kAll, kSummaries, kWalk };

/// Parts of half as many tokens: what adds to the state, as subsegments of sequences in a few segments
/// do.
constexpr SequenceParts parts_of_sums(SequenceParts parts) {
  parts.tokens /= kMostSubsegments;
  return parts;
}

/// segment_states and segment_decays are [sequence, head, saved state, ...], the latter of padded
/// K.
struct Params : SegmentWalkParams {
  ChannelGate gk, gv;
  float* segment_value_decays = nullptr;  // [sequence, head, saved state, value tile, values]
  Part part = Part::kAll;
  SummaryViews summaries = {};
  /// Slices of key channels side by side, along the grid's y. What each makes of the outputs is a plane:
  /// o is [B, T, heads, planes, value_channels].
  int slices = 1;
  std::int64_t output_plane = 0;  // elements from one to the next
  int slice_keys = 0;             // channels of a slice, padded
  int copied_keys = 0;            // of these those that there are: all where slices share a launch
  int subsegments = 1;            // of a segment
  LateStarts late = {};           // if they are
  float query_growth = 1;         // 2^c (operands.cuh), where operands are f16

  constexpr bool sums_all() const { return part != Part::kAll; }
  /// The same with room for what subsegments of parts add.
  constexpr void set_sums(std::int64_t of_head) {
    const SequenceParts whole = parts;
    parts = parts_of_sums(parts);
    SegmentWalkParams::set_sums(of_head);
    parts = whole;
  }
};
/// Of a sequence, where these are not cut into parts.
constexpr int first_launch_blocks(const Params& p) {
  return p.sums_all() || p.subsegments == 2 ? p.segments : p.segments - 1;
}

/// The type of what is multiplied: the tensors', but bf16 with gates of value channels, as what
/// these grow by within a chunk may be beyond the range of f16, and of more than 128 keys, for which
/// what f16 takes besides costs half as much time again.
template <class T, class Shape>
using Operand = std::conditional_t<Shape::kValuesDecay || (Shape::kKeys > 128), __nv_bfloat16, T>;
/// Whether the range of operands is less than that of fp32.
template <class T, class Shape>
inline constexpr bool kNarrow = std::is_same_v<Operand<T, Shape>, __half>;

/// 2^c for a scale of the outputs.
inline float query_growth(float scale) {
  constexpr int kLeast = -12, kMost = 2;  // with 2^12 at most within a chunk, in range of f16
  const int exponent = scale == 0.0F ? kLeast : std::clamp(std::ilogb(scale) + 2, kLeast, kMost);
  return std::ldexp(1.0F, exponent);
}

/// Whether there is an instance for padded key channels and value channels of a block: a wider
/// state does not fit into the registers.
constexpr bool is_compiled(Products products, int keys, int values, Gated gated) {
  if (values <= 64) return true;
  if (products == Products::kMma) return gated == Gated::kKeys && keys <= 128;
  return gated == Gated::kValues || (gated == Gated::kKeys && keys <= 192);
}

/// Calls f.operator()<Shape>() for the instance of padded key channels, gates and a config.
template <Products kProducts, Gated kGated, class Config, class F>
void with_shape(int keys, const Config& config, F&& f) {
  with_value_of<kPaddedKeys>(keys, [&]<int kKeys>() {
    with_instance(config, [&]<class Compiled>() {
      constexpr int kValues = Compiled::kValue.tile_v;
      if constexpr (is_compiled(kProducts, kKeys, kValues, kGated)) {
        f.template operator()<Shape<kKeys, kValues, kGated, kProducts>>();
      } else {
        throw_no_instance("so many channels of keys and values");
      }
    });
  });
}

}  // namespace attune::cuda::channels
