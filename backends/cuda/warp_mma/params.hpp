// The kernels of outputs.cuh, segment_sums.cuh and segment_starts.cu as host code sees them.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::warp_mma {

inline constexpr int kChunk = 16;  // tokens: rows of an mma
inline constexpr int kWarps = 4;   // of a block; each walks by itself
inline constexpr int kWidths[] = {16, 32};
/// Channels of keys and of values that a warp's tiles have: those beyond K and V are zeros.
constexpr int padded_width(std::int64_t keys, std::int64_t values) {
  return keys <= kWidths[0] && values <= kWidths[0] ? kWidths[0] : kWidths[1];
}
inline constexpr int kMostWidth = kWidths[1];

/// Which channels have gates of their own; part of a kernel's type.
enum class Gated { kNone, kKeys, kValues, kBoth };

struct Params {
  ConstTokenView q, k, v;
  GateView g;
  WalkGate gk, gv;
  ConstantDecayView gamma;
  ConstStateView initial_state;
  TokenView o;
  StateView final_state;
  SnapshotsView snapshots;
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  int heads = 1;
  int heads_per_kv = 1;
  int key_channels = 0;
  int value_channels = 0;
  float scale = 1;
  bool reverse = false;

  int segment_tokens = 0;  // a multiple of kChunk; 0: sequences are walked whole
  std::int64_t parts = 0;  // numbers of segments, of all sequences
  // What segments add to the state, and what they decay; null where sequences are walked whole:
  float4* sums = nullptr;         // [part, head, width / 16, width / 8, lane]
  float* key_decays = nullptr;    // [part, head, width]; [part, head] where no channels have gates
  float* value_decays = nullptr;  // [part, head, width]

  constexpr Gated gated() const {
    if (gk.view.given()) return gv.view.given() ? Gated::kBoth : Gated::kKeys;
    return gv.view.given() ? Gated::kValues : Gated::kNone;
  }
  constexpr int width() const { return padded_width(key_channels, value_channels); }
};

/// Queues what finds the sums of all segments but each sequence's last.
template <class T>
void launch_segment_sums(const Params& params, cudaStream_t stream);
/// Queues what makes each sum what the next segment starts from.
void launch_segment_starts(const Params& params, cudaStream_t stream);
/// Queues what makes outputs, final states and snapshots.
template <class T>
void launch_outputs(const Params& params, cudaStream_t stream);

}  // namespace attune::cuda::warp_mma
