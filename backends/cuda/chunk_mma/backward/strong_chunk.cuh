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

/// How much is left of its segment's start in a channel of the at-th chunk.
__device__ __forceinline__ float kept_decay(const KeptDecays& decays, std::int64_t at,
                                            int channel) {
  if (decays.of_chunks == nullptr) return 1.0F;
  return decays.of_chunks[at * decays.width + min(channel, static_cast<int>(decays.width) - 1)];
}

template <class Own, int kKeyPanels, int kValuePanels, bool kValueGates>
class StrongChunk {
 public:
  /// Of the key channels and the value channels from the first ones on; value_decays is null where
  /// these have no gates.
  __device__ StrongChunk(const BackwardParams& p, const Chunk& chunk, const std::byte* memory,
                         const ChannelTile<kKeyPanels>& key_decays,
                         const ChannelTile<kValuePanels>* value_decays, int first_key,
                         int first_value)
      : p_(p),
        chunk_(chunk),
        memory_(memory),
        key_decays_(key_decays),
        value_decays_(value_decays),
        first_key_(first_key),
        first_value_(first_value) {}

  /// Whether gradients of keys, and of values, are added to those that are there.
  __device__ bool adds_keys() const { return p_.keys.adds || first_value_ > 0; }
  __device__ bool adds_values() const { return p_.values.adds || first_key_ > 0; }

  // Not parts of their caller, which has registers for what chunks that are not strong keep in them.

  /// dq and dk, and the gradients of the gates of keys.
  __device__ __noinline__ void walk_keys(ChannelTile<kKeyPanels>* gates) const {
    float2 state[Rows<true>::kPairs];
    read_forward<true>(state, gates);
    write_back<true>(state, gates);
  }
  /// dv, and where values have gates the gradients of these.
  __device__ __noinline__ void walk_values(ChannelTile<kValuePanels>* gates) const {
    float2 state[Rows<false>::kPairs];
    if constexpr (kValueGates) read_forward<false>(state, gates);
    write_back<false>(state, gates);
  }

 private:
  template <bool kOfKeys>
  using Rows =
      StateRows<Own, kOfKeys ? kKeyPanels : kValuePanels, kOfKeys ? kValuePanels : kKeyPanels>;
  template <bool kOfKeys>
  static constexpr bool kHasGates = kOfKeys || kValueGates;
  // First panels of what reads along rows of keys or values, and of what writes.
  template <bool kOfKeys>
  static constexpr int kReads = kOfKeys ? 0 : 2 * kKeyPanels + kValuePanels;
  template <bool kOfKeys>
  static constexpr int kWrites = kOfKeys ? kKeyPanels : 2 * kKeyPanels;

  template <bool kOfKeys>
  __device__ const ChannelSide& side() const {
    return kOfKeys ? p_.keys : p_.values;
  }
  template <bool kOfKeys>
  __device__ int channels() const {
    return kOfKeys ? p_.keys.channels - first_key_ : p_.values.channels - first_value_;
  }
  __device__ float* gradient(const TokenView& to, int token) const {
    const SequenceSpan& span = chunk_.place.span;
    return static_cast<float*>(to.data) +
           row_offset(to, span.batch, chunk_.place.token(p_, token), chunk_.head);
  }
  template <bool kOfKeys>
  __device__ bool stores() const {
    return Rows<kOfKeys>::is_first_lane() && Rows<kOfKeys>::row() < channels<kOfKeys>();
  }
  /// What the decay of token i is of a channel.
  template <bool kOfKeys>
  __device__ float decay(int i, int channel) const {
    if constexpr (kOfKeys) {
      return key_decays_.at(i, channel);
    } else if constexpr (kValueGates) {
      return value_decays_->at(i, channel);
    } else {
      return 1.0F;
    }
  }
  /// Of a state, rows of so many.
  __device__ __forceinline__ float element_of(const float* state, std::int64_t at,
                                              std::int64_t width) const {
    if (!p_.splits_states) return state[at];
    const auto* const high = reinterpret_cast<const SplitPart*>(state) + at + at / width * width;
    return __bfloat162float(high[0]) + __bfloat162float(high[width]);
  }
  template <bool kOfKeys>
  __device__ __forceinline__ void load(float2 (&state)[Rows<kOfKeys>::kPairs],
                                       const StateSide& from, bool adds) const {
    using Lanes = Rows<kOfKeys>;
    const int row = Lanes::row();
    const std::int64_t width = state_columns(p_.values.channels);
    const std::int64_t step = kOfKeys ? 1 : width;  // from column to column
    const std::int64_t first =
        first_key_ * width + first_value_ + row * (kOfKeys ? width : 1) + Lanes::column(0) * step;
    const std::int64_t at = chunk_.number * p_.heads + chunk_.head;
    const std::int64_t segment = chunk_.segment * p_.heads + chunk_.head;
    const std::int64_t size = p_.keys.channels * width;
    const float* const own = from.states + at * size;
    const float* const start = from.segment_states + segment * size + first;
    const auto left = [&](bool of_keys, int channel) {
      return of_keys ? kept_decay(from.keys, at, first_key_ + channel)
                     : kept_decay(from.values, at, first_value_ + channel);
    };
    const float row_decay = left(kOfKeys, row);
    const bool exists = p_.has_states && row < channels<kOfKeys>();
    const int columns = exists ? channels<!kOfKeys>() : 0;
    const auto element = [&](int n, int e) {
      const int column = Lanes::column(n) + e;
      if (column >= columns) return 0.0F;
      const std::int64_t offset = (2 * n * Lanes::kLanes + e) * step;
      const float x = element_of(own, first + offset, width);
      if (!adds) return x;
      return fmaf(start[offset], row_decay * left(!kOfKeys, column), x);
    };
#pragma unroll
    for (int n = 0; n < Lanes::kPairs; ++n) state[n] = {element(n, 0), element(n, 1)};
  }

  /// <S, D> of a row.
  template <class Lanes>
  __device__ __forceinline__ static float product_of(const float2 (&state)[Lanes::kPairs],
                                                     const float2 (&back)[Lanes::kPairs]) {
    float sum = 0.0F;
#pragma unroll
    for (int n = 0; n < Lanes::kPairs; ++n) {
      sum = fmaf(state[n].x, back[n].x, fmaf(state[n].y, back[n].y, sum));
    }
    return Lanes::sum(sum);
  }

  /// What each token reads of S, forward: gates has it times what reads. Leaves S behind the chunk.
  template <bool kOfKeys, class Tile>
  __device__ __forceinline__ void read_forward(float2 (&state)[Rows<kOfKeys>::kPairs],
                                               Tile* gates) const {
    using Lanes = Rows<kOfKeys>;
    load<kOfKeys>(state, p_.forward, chunk_.adds_forward);
#pragma unroll 1
    for (int i = 0; i < chunk_.place.rows; ++i) {
      const float row_decay = decay<kOfKeys>(i, Lanes::row());
      const float write = channel_of(memory_, kWrites<kOfKeys>, i, Lanes::row());
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < Lanes::kPairs; ++n) {
        const int column = Lanes::column(n);
        const float2 writes = pair_of(memory_, kWrites<!kOfKeys>, i, column);
        const float2 reads = pair_of(memory_, kReads<!kOfKeys>, i, column);
        state[n].x = fmaf(state[n].x, row_decay * decay<!kOfKeys>(i, column), write * writes.x);
        state[n].y = fmaf(state[n].y, row_decay * decay<!kOfKeys>(i, column + 1), write * writes.y);
        sum = fmaf(state[n].x, reads.x, fmaf(state[n].y, reads.y, sum));
      }
      const float read = p_.scale * Lanes::sum(sum);
      if (!Lanes::is_first_lane()) continue;
      gates->at(i, Lanes::row()) = channel_of(memory_, kReads<kOfKeys>, i, Lanes::row()) * read;
      if (kOfKeys && stores<kOfKeys>()) {
        store_share(gradient(p_.keys.read_gradients, i) + first_key_ + Lanes::row(), read,
                    adds_keys());
      }
    }
  }

  /// What each token reads of D, back, which is the gradient of what it writes; and the gradients of
  /// gates. `state` is S behind the chunk.
  template <bool kOfKeys, class Tile>
  __device__ __forceinline__ void write_back(const float2 (&state)[Rows<kOfKeys>::kPairs],
                                             Tile* gates) const {
    using Lanes = Rows<kOfKeys>;
    float2 back[Lanes::kPairs];
    load<kOfKeys>(back, p_.back, chunk_.adds_back);
    float past = kHasGates<kOfKeys> ? product_of<Lanes>(state, back) : 0.0F;
#pragma unroll 1
    for (int i = chunk_.place.rows - 1; i >= 0; --i) {
      const float row_decay = decay<kOfKeys>(i, Lanes::row());
      const float read = p_.scale * channel_of(memory_, kReads<kOfKeys>, i, Lanes::row());
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < Lanes::kPairs; ++n) {
        const int column = Lanes::column(n);
        const float2 writes = pair_of(memory_, kWrites<!kOfKeys>, i, column);
        const float2 reads = pair_of(memory_, kReads<!kOfKeys>, i, column);
        const float2 d{fmaf(read, reads.x, back[n].x), fmaf(read, reads.y, back[n].y)};
        sum = fmaf(d.x, writes.x, fmaf(d.y, writes.y, sum));
        back[n] = {d.x * (row_decay * decay<!kOfKeys>(i, column)),
                   d.y * (row_decay * decay<!kOfKeys>(i, column + 1))};
      }
      const float gradient_of_write = Lanes::sum(sum);
      if (!Lanes::is_first_lane()) continue;
      if constexpr (kHasGates<kOfKeys>) {
        const float write = channel_of(memory_, kWrites<kOfKeys>, i, Lanes::row());
        past += gates->at(i, Lanes::row()) - write * gradient_of_write;
        if (row_decay == 0.0F) past = 0.0F;
        gates->at(i, Lanes::row()) = past;
      }
      if (stores<kOfKeys>()) {
        float* const to = gradient(side<kOfKeys>().write_gradients, i) + Lanes::row();
        store_share(to + (kOfKeys ? first_key_ : first_value_), gradient_of_write,
                    kOfKeys ? adds_keys() : adds_values());
      }
    }
  }

  const BackwardParams& p_;
  const Chunk& chunk_;
  const std::byte* memory_;
  const ChannelTile<kKeyPanels>& key_decays_;
  const ChannelTile<kValuePanels>* value_decays_;
  const int first_key_;
  const int first_value_;
};

}  // namespace attune::cuda::chunk_mma::backward
