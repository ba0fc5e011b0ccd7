// A chunk whose decays are too strong to be divided by: token by token, as they are. A few lanes
// that lie side by side have a row of a state, so that sums over its columns need no barrier.
#pragma once

#include "cuda/chunk_mma/backward/channel_scan.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Rows of a state by key channels or, for its transpose, by value channels.
template <class Own, int kRowPanels, int kColumnPanels>
struct StateRows {
  static constexpr int kLanes = Own::kThreads / (kRowPanels * kPanelChannels);  // of a row
  static constexpr int kPairs = kColumnPanels * kPanelChannels / kLanes / 2;    // of a lane

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ static bool is_first_lane() { return threadIdx.x % kLanes == 0; }
  /// The first column of a lane's pair.
  __device__ static int column(int pair) {
    return 2 * (pair * kLanes + static_cast<int>(threadIdx.x) % kLanes);
  }
  __device__ static float sum(float x) {
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kFullWarp, x, apart);
    return x;
  }
};

/// Two neighbouring channels of a token, of panels that lie one after the other from `first` on.
__device__ __forceinline__ float2 pair_of(const std::byte* memory, int first, int token,
                                          int channel) {
  const Panel panel = panel_at(memory, first + channel / kPanelChannels);
  const int byte = channel % kPanelChannels * 2;
  return joined(
      {load_shared_4(panel.high.at(token, byte)), load_shared_4(panel.low.at(token, byte))});
}
__device__ __forceinline__ float channel_of(const std::byte* memory, int first, int token,
                                            int channel) {
  const float2 pair = pair_of(memory, first, token, channel / 2 * 2);
  return channel % 2 == 0 ? pair.x : pair.y;
}

/// Element (key, value) of one of the chunk's states.
__device__ __forceinline__ float state_element(const BackwardParams& p, const Chunk& chunk,
                                               const StateSide& side, bool adds, int key,
                                               int value) {
  if (key >= p.key_channels || value >= p.value_channels) return 0.0F;
  const std::int64_t columns = state_columns(p.value_channels);
  const std::int64_t size = p.key_channels * columns;
  const std::int64_t at = chunk.number * p.heads + chunk.head;
  const std::int64_t element = key * columns + value;
  const float own = side.states[at * size + element];
  if (!adds) return own;
  const std::int64_t segment = chunk.segment * p.heads + chunk.head;
  return fmaf(side.segment_states[segment * size + element],
              side.chunk_decays[at * p.decay_width + key], own);
}

template <class Own, int kKeyPanels, int kValuePanels>
class StrongChunk {
 public:
  __device__ StrongChunk(const BackwardParams& p, const Chunk& chunk, const std::byte* memory,
                         ChannelMemory<kKeyPanels>& channels, ChannelTile<kKeyPanels>& gates)
      : p_(p), chunk_(chunk), memory_(memory), decays_(channels.logs), gates_(gates) {}

  /// Not a part of its caller, which has registers for what chunks that are not strong keep in them.
  __device__ __noinline__ void run() const {
    walk_keys();
    walk_values();
  }

 private:
  using Keys = StateRows<Own, kKeyPanels, kValuePanels>;
  using Values = StateRows<Own, kValuePanels, kKeyPanels>;
  static constexpr int kQ = 0;  // first panels
  static constexpr int kK = kKeyPanels;
  static constexpr int kV = 2 * kKeyPanels;
  static constexpr int kDo = kV + kValuePanels;

  __device__ float* gradient(const TokenView& to, int token) const {
    const SequenceSpan& span = chunk_.place.span;
    return static_cast<float*>(to.data) +
           row_offset(to, span.batch, chunk_.place.token(p_, token), chunk_.head);
  }

  /// dq with S forward, then dk and the gradients of gates with D back.
  __device__ void walk_keys() const {
    const int key = Keys::row();
    const bool stores = Keys::is_first_lane() && key < p_.key_channels;
    float2 state[Keys::kPairs];
    load<Keys>(state, p_.forward, chunk_.adds_forward, key);
#pragma unroll 1
    for (int i = 0; i < chunk_.place.rows; ++i) {
      const float decay = decays_.at(i, key);
      const float k = channel_of(memory_, kK, i, key);
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < Keys::kPairs; ++n) {
        const float2 v = pair_of(memory_, kV, i, Keys::column(n));
        const float2 d_o = pair_of(memory_, kDo, i, Keys::column(n));
        state[n].x = fmaf(state[n].x, decay, k * v.x);
        state[n].y = fmaf(state[n].y, decay, k * v.y);
        sum = fmaf(state[n].x, d_o.x, fmaf(state[n].y, d_o.y, sum));
      }
      const float dq = p_.scale * Keys::sum(sum);
      if (!Keys::is_first_lane()) continue;
      gates_.at(i, key) = channel_of(memory_, kQ, i, key) * dq;
      if (stores) store_share(gradient(p_.dq, i) + key, dq, p_.adds_keys);
    }

    float2 back[Keys::kPairs];
    load<Keys>(back, p_.back, chunk_.adds_back, key);
    float past = 0.0F;  // <S, D>
#pragma unroll
    for (int n = 0; n < Keys::kPairs; ++n) {
      past = fmaf(state[n].x, back[n].x, fmaf(state[n].y, back[n].y, past));
    }
    past = Keys::sum(past);
#pragma unroll 1
    for (int i = chunk_.place.rows - 1; i >= 0; --i) {
      const float decay = decays_.at(i, key);
      const float q = p_.scale * channel_of(memory_, kQ, i, key);
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < Keys::kPairs; ++n) {
        const float2 v = pair_of(memory_, kV, i, Keys::column(n));
        const float2 d_o = pair_of(memory_, kDo, i, Keys::column(n));
        const float2 d{fmaf(q, d_o.x, back[n].x), fmaf(q, d_o.y, back[n].y)};
        sum = fmaf(d.x, v.x, fmaf(d.y, v.y, sum));
        back[n] = {d.x * decay, d.y * decay};
      }
      const float dk = Keys::sum(sum);
      if (!Keys::is_first_lane()) continue;
      past += gates_.at(i, key) - channel_of(memory_, kK, i, key) * dk;
      if (decay == 0.0F) past = 0.0F;
      gates_.at(i, key) = past;
      if (stores) store_share(gradient(p_.dk, i) + key, dk, p_.adds_keys);
    }
  }

  /// dv with D^T back.
  __device__ void walk_values() const {
    const int value = Values::row();
    const bool stores = Values::is_first_lane() && value < p_.value_channels;
    float2 back[Values::kPairs];
#pragma unroll
    for (int n = 0; n < Values::kPairs; ++n) {
      const int key = Values::column(n);
      back[n].x = state_element(p_, chunk_, p_.back, chunk_.adds_back, key, value);
      back[n].y = state_element(p_, chunk_, p_.back, chunk_.adds_back, key + 1, value);
    }
#pragma unroll 1
    for (int i = chunk_.place.rows - 1; i >= 0; --i) {
      const float d_o = p_.scale * channel_of(memory_, kDo, i, value);
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < Values::kPairs; ++n) {
        const int key = Values::column(n);
        const float2 q = pair_of(memory_, kQ, i, key);
        const float2 k = pair_of(memory_, kK, i, key);
        const float2 d{fmaf(q.x, d_o, back[n].x), fmaf(q.y, d_o, back[n].y)};
        sum = fmaf(d.x, k.x, fmaf(d.y, k.y, sum));
        back[n] = {d.x * decays_.at(i, key), d.y * decays_.at(i, key + 1)};
      }
      const float dv = Values::sum(sum);
      if (stores) store_share(gradient(p_.dv, i) + value, dv, p_.adds_values);
    }
  }

  template <class Rows>
  __device__ void load(float2 (&state)[Rows::kPairs], const StateSide& side, bool adds,
                       int key) const {
#pragma unroll
    for (int n = 0; n < Rows::kPairs; ++n) {
      state[n].x = state_element(p_, chunk_, side, adds, key, Rows::column(n));
      state[n].y = state_element(p_, chunk_, side, adds, key, Rows::column(n) + 1);
    }
  }

  const BackwardParams& p_;
  const Chunk& chunk_;
  const std::byte* memory_;
  const ChannelTile<kKeyPanels>& decays_;
  ChannelTile<kKeyPanels>& gates_;  // q dq, then the gradients of gates
};

}  // namespace attune::cuda::chunk_mma::backward
