// Factors of a row's tokens where products on tensor cores take them: what decays make of what a token
// reads and writes. Where all channels of a head share a decay they are numbers of a token, else of a
// token and a row of the state.
#pragma once

#include "cuda/decode/product_tokens.cuh"

namespace attune::cuda::decode {

/// In the lane of a place: what all channels of the head share of its token's log decay, as it comes
/// from memory.
template <class T>
struct RawHeadDecay {
  float constant = 0;
  RawGate<T> g;
  __device__ __forceinline__ float log_decay(const StepParams& p) const {
    return constant + log_decay_of(p.fresh.g, g);
  }
};
template <class T>
__device__ __forceinline__ RawHeadDecay<T> read_head_decay(const StepParams& p,
                                                           const ProductBlock& at) {
  RawHeadDecay<T> raw;
  const int place = lane_index(), t = place - p.committed_tokens;
  if (t < 0) {
    raw.g = read_gate<T>(p.committed.g, at.b, place, at.head, 0);
  } else if (t < p.tokens) {
    raw.g = read_gate<T>(p.fresh.g, at.b, t, at.head, 0);
  }
  raw.constant = constant_decay(p.gamma, 0, at.head);
  return raw;
}

/// Whether a place has a token that the state takes or that is new.
__device__ __forceinline__ bool is_taken(const StepParams& p, const ProductRow& row, int place) {
  return place < row.committed ||
         (place >= p.committed_tokens && place < p.committed_tokens + p.tokens);
}

/// Makes the factors of a head's tokens, by the first warp: a_s, what comes before a token is read
/// times the scale, A_s, and what is behind one that is stored, a_s ... a_{m-1}, which is what the
/// token before it writes times.
template <class T>
__device__ __forceinline__ void make_head_factors(const StepParams& p,
                                                  const ProductScratch<T>& scratch,
                                                  const ProductRow& row, float log_decay) {
  const int place = lane_index();
  const float decay = is_taken(p, row, place) ? expf(log_decay) : 1.0F;
  float until = decay, since = place < row.stored ? decay : 1.0F;
#pragma unroll
  for (int apart = 1; apart < ProductShape::kPlaces; apart *= 2) {
    const float before = __shfl_up_sync(kFullWarp, until, apart);
    until *= place >= apart ? before : 1.0F;
    since *= __shfl_down_sync(kFullWarp, since, apart);  // the last lanes have ones
  }
  if (place < p.committed_tokens + p.tokens) scratch.decays[place] = decay;
  if (place < ProductShape::kPlaces) scratch.reads[place] = until * p.scale;
  if (place <= ProductShape::kPlaces) scratch.writes[place] = since;
}

/// y_s and A_{m-1} of row i. Tokens four apart are side by side.
template <class T>
__device__ __forceinline__ void make_writes(const ProductScratch<T>& scratch,
                                            const float (&decays)[kProductTokens], int stored,
                                            int i, bool exists) {
  float since = 1;
  float writes[kProductTokens];
#pragma unroll
  for (int s = kProductTokens - 1; s >= 0; --s) {
    writes[s] = 0;
    if (s >= stored) continue;
    if (exists) writes[s] = to_float(scratch.keys[s * kTokenStride + i]) * since;
    since *= decays[s];
  }
  scratch.kept[i] = since;
  auto* const to = reinterpret_cast<float4*>(scratch.writes + i / kFactorRows * kFactorStride +
                                             i % kFactorRows * kProductTokens);
  to[0] = {writes[0], writes[4], writes[1], writes[5]};
  to[1] = {writes[2], writes[6], writes[3], writes[7]};
}

/// Of a row of the tile where channels have decays of their own: those, and from them what tokens read
/// of it, q_t A_t times the scale, what they write to it, y_s, and A_{m-1}. Factors of rows that do not
/// exist are zero. `head_log_decay` is a lane's of its place.
template <bool kKeeps, class T>
__device__ __forceinline__ void make_row_factors(const StepParams& p,
                                                 const ProductScratch<T>& scratch,
                                                 const ProductRow& row, float head_log_decay, int i,
                                                 bool exists) {
  const int old = p.committed_tokens, places = old + p.tokens;
  float* const reads = scratch.reads + i / kFactorRows * kFactorStride + i % kFactorRows;
  float stored[kProductTokens];  // decays
  float until = p.scale;
#pragma unroll
  for (int place = 0; place < ProductShape::kPlaces; ++place) {
    if (place >= places) break;
    float& decay = scratch.decays[place * kProductRows + i];
    const float log_decay =
        __shfl_sync(kFullWarp, head_log_decay, place) +
        (p.fresh.gk.is_f32 ? decay : to_float(scratch.gates[place * kTokenStride + i]));
    const float by = is_taken(p, row, place) ? expf(log_decay) : 1.0F;
    decay = by;
    if (place < kProductTokens) stored[place] = by;
    until *= by;
    if (place < old) continue;
    const int t = place - old;
    const float query = to_float(scratch.queries[t * kTokenStride + i]);
    reads[t * kFactorRows] = exists ? query * until : 0;
  }
  for (int t = p.tokens; t < kProductTokens; ++t) reads[t * kFactorRows] = 0;
  if constexpr (!kKeeps) make_writes(scratch, stored, row.stored, i, exists);
}

/// Makes the factors of the tile's rows, by channels.
template <bool kKeeps, class T>
__device__ __forceinline__ void make_channel_factors(const StepParams& p, const ProductShape& shape,
                                                     const ProductScratch<T>& scratch,
                                                     const ProductBlock& at, const ProductRow& row,
                                                     float head_log_decay) {
  for (int i = static_cast<int>(threadIdx.x); i < shape.rows; i += static_cast<int>(blockDim.x)) {
    make_row_factors<kKeeps>(p, scratch, row, head_log_decay, i, i < at.rows);
  }
}

}  // namespace attune::cuda::decode
