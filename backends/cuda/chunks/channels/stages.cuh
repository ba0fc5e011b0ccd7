// Chunks of a block's tensors on their way to shared memory.
#pragma once

#include "cuda/chunks/channels/log_sums.cuh"
#include "cuda/chunks/segment_walk.cuh"

namespace attune::cuda::channels {

/// The tiles of one chunk. q and k become operands where they lie, gv becomes its sums.
template <class Shape>
struct Stage {
  __device__ explicit Stage(std::byte* memory)
      : k(shared_address(memory)),
        v(shared_address(memory) + Shape::kKeyTileBytes),
        q(shared_address(memory) + Shape::kKeyTileBytes + Shape::kValueTileBytes),
        key_gates(memory + 2 * Shape::kKeyTileBytes + Shape::kValueTileBytes),
        value_gates(key_gates + (Shape::kKeysDecay ? Shape::kChunk * Shape::kKeyGateRowBytes : 0)) {
  }
  Tile<Shape> k, v, q;
  std::byte* key_gates;
  std::byte* value_gates;

  /// Sums of value channel v, in the place of the gates of row `row`.
  __device__ float* value_sums(int row) const {
    return reinterpret_cast<float*>(value_gates + row * Shape::kValueGateRowBytes);
  }
  /// Sums of key channels, where they are needed one by one.
  __device__ float* key_sums(int row) const {
    return reinterpret_cast<float*>(key_gates + row * Shape::kKeyGateRowBytes);
  }
};

/// This thread's part of a tensor's rows. Eight threads copy a row, 16 bytes each; the threads of a
/// role 16 rows at a time. Steps from a token to the next are in bytes and come with each call, as
/// they are in every thread the same: here they would be registers.
template <class Shape>
class RowSource {
 public:
  static constexpr int kCopyBytes = 16;
  static constexpr int kRowThreads = 8;
  static constexpr int kRows = Shape::kStateThreads / kRowThreads;  // at a time

  /// `first` is the segment's first token.
  __device__ RowSource(const void* first, std::int64_t step)
      : from_(static_cast<const std::byte*>(first) + own_row() * step + own_byte()) {}

  /// Begins to copy kChunk rows of kChannels elements of kWidth bytes: byte b of row i goes to the
  /// address place(i, b). Those beyond `rows` and `channels` become zeros.
  template <int kWidth, int kChannels, int kChunk, class Place>
  __device__ __forceinline__ void copy(std::int64_t step, int rows, int channels,
                                       Place&& place) const {
    for_each_copy<kWidth, kChannels, kChunk>(
        step, rows, channels, [&](int row, int byte, const std::byte* from, bool valid) {
          copy_async_16(place(row, byte), from, valid);
        });
  }
  /// The same of rows that start anywhere, one element after the other; T is their type.
  template <class T, int kChannels, int kChunk, class Place>
  __device__ __forceinline__ void copy_unaligned(std::int64_t step, int rows, int channels,
                                                 Place&& place) const {
    for_each_copy<sizeof(T), kChannels, kChunk>(
        step, rows, channels, [&](int row, int byte, const std::byte* from, bool valid) {
          T* const to = reinterpret_cast<T*>(place(row, byte));
#pragma unroll 1
          for (int e = 0; e < kCopyBytes / static_cast<int>(sizeof(T)); ++e) {
            to[e] = valid ? reinterpret_cast<const T*>(from)[e] : from_float<T>(0.0F);
          }
        });
  }
  /// To the next chunk.
  template <int kChunk>
  __device__ __forceinline__ void advance(std::int64_t step) {
    from_ += kChunk * step;
  }

 private:
  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  __device__ static int own_byte() {
    return static_cast<int>(threadIdx.x) % kRowThreads * kCopyBytes;
  }

  template <int kWidth, int kChannels, int kChunk, class Visit>
  __device__ __forceinline__ void for_each_copy(std::int64_t step, int rows, int channels,
                                                Visit&& visit) const {
#pragma unroll
    for (int first = 0; first < kChunk; first += kRows) {
      const int row = first + own_row();
#pragma unroll
      for (int at = 0; at < kChannels * kWidth; at += kRowThreads * kCopyBytes) {
        const bool valid = row < rows && at + own_byte() < channels * kWidth;
        visit(row, at + own_byte(), from_ + first * step + at, valid);
      }
    }
  }

  const std::byte* from_;
};

/// A gate with a value for every channel.
template <class Shape>
class GateSource {
 public:
  __device__ GateSource(const Params& p, const ChannelGate& gate, const Walk& walk, int channel)
      : rows_(static_cast<const std::byte*>(gate.view.rows.data) +
                  (row_offset(gate.view.rows, walk.span.batch, walk.first_token(), walk.head) +
                   channel) *
                      element_bytes(gate),
              step(p, gate)) {}

  /// Begins to copy the next chunk; zeros fill what does not exist.
  template <class T, int kChannels, int kChunk>
  __device__ __forceinline__ void load(const Params& p, const ChannelGate& gate, std::byte* to,
                                       int row_bytes, int rows, int channels) {
    if (gate.view.is_f32) {
      load_as<float, kChannels, kChunk>(p, gate, to, row_bytes, rows, channels);
    } else {
      load_as<T, kChannels, kChunk>(p, gate, to, row_bytes, rows, channels);
    }
    rows_.template advance<kChunk>(step(p, gate));
  }

 private:
  __device__ static int element_bytes(const ChannelGate& gate) { return gate.view.is_f32 ? 4 : 2; }
  __device__ static std::int64_t step(const Params& p, const ChannelGate& gate) {
    return (p.reverse ? -gate.view.rows.token : gate.view.rows.token) * element_bytes(gate);
  }

  template <class T, int kChannels, int kChunk>
  __device__ __forceinline__ void load_as(const Params& p, const ChannelGate& gate, std::byte* to,
                                          int row_bytes, int rows, int channels) const {
    if (gate.aligned) {
      const std::uint32_t address = shared_address(to);
      rows_.template copy<sizeof(T), kChannels, kChunk>(
          step(p, gate), rows, channels,
          [&](int row, int byte) { return address + row * row_bytes + byte; });
    } else {
      rows_.template copy_unaligned<T, kChannels, kChunk>(
          step(p, gate), rows, channels,
          [&](int row, int byte) { return to + row * row_bytes + byte; });
    }
  }

  RowSource<Shape> rows_;
};

/// The decay that all channels of a token share, in base 2. Fetched a chunk before it is put, so
/// that no thread waits for it.
template <class T, int kChunk>
class CommonGate {
 public:
  __device__ CommonGate(const Params& p, const Walk& walk)
      : gate_(p.g),
        first_(row_offset(p.g.rows, walk.span.batch, walk.first_token(), walk.head)),
        constant_(constant_decay(p.gamma, walk.sequence, walk.head)) {}

  __device__ void fetch(const Walk& walk, int chunk) {
    exists_ =
        static_cast<int>(threadIdx.x) < kChunk && static_cast<int>(threadIdx.x) < walk.rows(chunk);
    if (!exists_ || !gate_.given()) return;
    const std::int64_t at =
        first_ +
        walk.token(walk.position(chunk) + static_cast<int>(threadIdx.x)) * gate_.rows.token;
    bits_ = gate_.is_f32 ? static_cast<const std::uint32_t*>(gate_.rows.data)[at]
                         : static_cast<const std::uint16_t*>(gate_.rows.data)[at];
  }
  __device__ void put(float (&to)[kChunk]) const {
    if (static_cast<int>(threadIdx.x) >= kChunk) return;
    const float loaded = gate_.is_f32 ? __uint_as_float(bits_) : unpack<T>(bits_).x;
    to[static_cast<int>(threadIdx.x)] = exists_ ? (loaded + constant_) * kLog2E : 0.0F;
  }

 private:
  const GateView& gate_;
  const std::int64_t first_;
  const float constant_;
  bool exists_ = false;
  std::uint32_t bits_ = 0;  // as they came: reading them would be waiting for them
};

/// Copies a block's chunks to its stages, one after the other.
template <class T, class Shape, bool kWithQueries>
class Loader {
 public:
  __device__ Loader(const Params& p, const Walk& walk)
      : p_(p),
        q_(source_of(p.q, walk, walk.head, walk.slice * Shape::kKeys)),
        k_(source_of(p.k, walk, walk.head / p.heads_per_kv, walk.slice * Shape::kKeys)),
        v_(source_of(p.v, walk, walk.head / p.heads_per_kv, walk.first_value)),
        key_gates_(p, p.gk, walk, walk.slice * Shape::kKeys),
        value_gates_(p, p.gv, walk, walk.first_value) {}

  /// Begins to copy chunk number `chunk`, which is one after that of the last call. What there is
  /// of it beyond the last is nothing.
  __device__ __forceinline__ void load(const Stage<Shape>& to, const Walk& walk, int chunk) {
    if (chunk < walk.chunks) {
      const int rows = walk.rows(chunk);
      const int keys = p_.copied_keys;
      const int values = p_.value_channels - walk.first_value;  // of the block's and beyond
      load_tile<Shape::kKeys>(k_, p_.k, to.k, rows, keys);
      load_tile<Shape::kValues>(v_, p_.v, to.v, rows, values);
      if constexpr (kWithQueries) load_tile<Shape::kKeys>(q_, p_.q, to.q, rows, keys);
      if constexpr (Shape::kKeysDecay) {
        key_gates_.template load<T, Shape::kKeys, Shape::kChunk>(
            p_, p_.gk, to.key_gates, Shape::kKeyGateRowBytes, rows, keys);
      }
      if constexpr (Shape::kValuesDecay) {
        value_gates_.template load<T, Shape::kValues, Shape::kChunk>(
            p_, p_.gv, to.value_gates, Shape::kValueGateRowBytes, rows, values);
      }
    }
    copy_async_commit();
  }

 private:
  __device__ std::int64_t step(const ConstTokenView& view) const {
    return (p_.reverse ? -view.token : view.token) * static_cast<int>(sizeof(T));
  }
  __device__ RowSource<Shape> source_of(const ConstTokenView& view, const Walk& walk, int head,
                                        int channel) const {
    return RowSource<Shape>(rows_of<const T>(view, walk, head, channel).first, step(view));
  }
  template <int kChannels>
  __device__ __forceinline__ void load_tile(RowSource<Shape>& from, const ConstTokenView& view,
                                            const Tile<Shape>& to, int rows, int channels) {
    from.template copy<sizeof(T), kChannels, Shape::kChunk>(
        step(view), rows, channels, [&](int row, int byte) { return to.at(row, byte); });
    from.template advance<Shape::kChunk>(step(view));
  }

  const Params& p_;
  RowSource<Shape> q_, k_, v_;
  GateSource<Shape> key_gates_, value_gates_;
};

}  // namespace attune::cuda::channels
