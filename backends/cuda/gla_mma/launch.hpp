// The kernels of gla_mma.cuh as host code sees them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "config.hpp"
#include "cuda/chunks/segment_walk.hpp"

namespace attune::cuda::gla_mma {

/// Which channels have decays of their own; part of a kernel's type.
enum class Gated { kKeys, kValues, kBoth };
constexpr bool keys_decay(Gated gated) { return gated != Gated::kValues; }
constexpr bool values_decay(Gated gated) { return gated != Gated::kKeys; }

/// What the state is multiplied by: mma.sync, or wgmma (sm_90a); part of a kernel's type.
enum class Products { kMma, kWgmma };

/// Warps of a block that make operands. The others keep the state and copy what chunks need: as
/// many, or with wgmma one for each 16 value channels.
inline constexpr int kMakerWarps = 4;
inline constexpr int kMakerThreads = 32 * kMakerWarps;
constexpr int keeper_warps(Products products, int values) {
  return products == Products::kMma ? 4 : values / kValuesPerWarp;
}

/// A first launch finds what segments but the last add to the state. Few of them are cut in two, at
/// places that give each of as many blocks as there are segments the same: the later piece of one
/// and the earlier piece of the next.
inline constexpr int kMostPieces = 2;
constexpr int pieces_of_segment(int segments) { return segments <= 4 ? kMostPieces : 1; }
constexpr int first_launch_blocks(int segments) {
  return pieces_of_segment(segments) == 2 ? segments : segments - 1;
}
/// A slot for each piece, and one for the initial state.
constexpr int slots_of(int segments) { return pieces_of_segment(segments) * (segments - 1) + 1; }

/// A sum in a row of fp32 that neither lanes' rows nor their columns make share banks.
inline constexpr int kSumsPadding = 4;

/// One instance of the kernels. Sizes are those of shared memory.
template <int kKeyChannels, int kValueChannels, Gated kGatedSides, Products kProduct>
struct Shape {
  static constexpr int kKeys = kKeyChannels;
  static constexpr int kValues = kValueChannels;
  static constexpr bool kKeysDecay = keys_decay(kGatedSides);
  static constexpr bool kValuesDecay = values_decay(kGatedSides);
  static constexpr Products kProducts = kProduct;
  static constexpr int kKeeperWarps = keeper_warps(kProducts, kValues);  // the block's first
  static constexpr int kKeeperThreads = 32 * kKeeperWarps;
  static constexpr int kBlockThreads = kKeeperThreads + kMakerThreads;
  static constexpr int kTiles = kValues / (kValuesPerWarp * kKeeperWarps);  // a warp's of 16 values
  static constexpr int kChunk = kKeysDecay && kValuesDecay && kKeys > 192 ? 16 : 32;  // tokens
  static constexpr int kThreads = kKeeperThreads;  // that load a tile
  static constexpr int kMostKeysOfTwo = kValuesDecay || kProducts == Products::kWgmma ? 64 : 128;
  static constexpr int kResidentBlocks =
      kTiles == 1 && kKeeperWarps == 4 && kKeys <= kMostKeysOfTwo ? 2 : 1;

  static constexpr int kPanelBytes = kChunk * kPanelRowBytes;
  static constexpr int kPanelAlignment = kProducts == Products::kWgmma ? 1024 : 128;  // of P
  static constexpr int kKeyTileBytes = kKeys / kPanelChannels * kPanelBytes;
  static constexpr int kValueTileBytes = kValues / kPanelChannels * kPanelBytes;
  static constexpr int kKeyGateRowBytes = kKeys * static_cast<int>(sizeof(float));
  static constexpr int kValueGateRowBytes =
      (kValues + kSumsPadding) * static_cast<int>(sizeof(float));
  static constexpr int kSlotBytes = 2 * kKeyTileBytes + kValueTileBytes +
                                    (kKeysDecay ? kChunk * kKeyGateRowBytes : 0) +
                                    (kValuesDecay ? kChunk * kValueGateRowBytes : 0);
};

/// Neighbouring channels whose sums a thread has.
constexpr int channels_per_thread(int channels) { return channels < 128 ? 2 : 4; }
/// Threads that share the sums of a channel, each of a part of the chunk's tokens.
constexpr int parts_of(int channels) {
  return channels_per_thread(channels) * kMakerThreads / channels;
}

/// What the makers of operands hand to the keepers of the state beside a chunk's tiles.
template <class Shape>
struct alignas(Shape::kPanelAlignment) Handover {
  std::byte weights[Shape::kPanelBytes];        // P
  float key_decays[Shape::kKeys];               // 2^r, r the step of the channel's reference
  std::uint32_t key_growths[Shape::kKeys / 2];  // 2^-r, pairs of bf16
  float value_steps[Shape::kValues];            // r
  int strong;                                   // some |r| is too large for products
};

/// With ATTUNE_RACECHECK the roles of a block tell each other by these (role_signals.cuh).
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

/// A block's shared memory after its slots.
template <class Shape>
struct Shared {
  Handover<Shape> handovers[2];
  float key_totals[parts_of(Shape::kKeys)][Shape::kKeys];
  float value_totals[parts_of(Shape::kValues)][Shape::kValues];
  float key_rests[Shape::kKeys];  // log2 of the state over what the last reference made of it
  float value_rests[Shape::kValues];
  float common_gates[2][Shape::kChunk];  // log2 of the decays that all channels share
  [[no_unique_address]] std::conditional_t<kSharedRoleBarriers,
                                           std::array<RoleBarriers, kMostPieces>, NoRoleBarriers>
      role_barriers;
};

template <class Shape>
constexpr std::size_t shared_bytes(int stages) {
  return static_cast<std::size_t>(stages) * Shape::kSlotBytes + sizeof(Shared<Shape>);
}

/// A gate per channel, and whether its rows start at multiples of 16 bytes.
struct ChannelGate {
  GateView view;
  bool aligned = true;
};

/// `chunk_mma`'s, with segment_states and segment_decays of [sequence, head, slot, ...], the latter
/// of padded K.
struct Params : SegmentWalkParams {
  ChannelGate gk, gv;
  float* segment_value_decays = nullptr;  // [sequence, head, slot, value tile, values]
};

/// Calls f.operator()<Shape>() for the shape of padded key channels, a config and gates.
template <Products kProducts, Gated kGated, class F>
auto with_shape(int keys, int values, F&& f) {
  const auto narrow_or_wide = [&]<int kKeys>() {
    if constexpr (kGated == Gated::kKeys && kKeys <= 128) {
      if (values == 128) return f.template operator()<Shape<kKeys, 128, kGated, kProducts>>();
    }
    return f.template operator()<Shape<kKeys, 64, kGated, kProducts>>();
  };
  switch (keys) {
    case 64:
      return narrow_or_wide.template operator()<64>();
    case 128:
      return narrow_or_wide.template operator()<128>();
    case 192:
      return narrow_or_wide.template operator()<192>();
    default:
      return narrow_or_wide.template operator()<256>();
  }
}
/// Whether there is such a shape.
constexpr bool is_compiled(int keys, int values, Gated gated) {
  return values == 64 || (gated == Gated::kKeys && keys <= 128);
}

/// Queues everything: with more than one segment, what finds their states first.
template <class T, Gated kGated, Products kProducts>
void launch_gla_mma(const Params& params, const GlaMmaConfig& config, cudaStream_t stream);

}  // namespace attune::cuda::gla_mma
