// Chunks of a block's tensors on their way to shared memory.
#pragma once

#include "cuda/chunk_mma/stages.cuh"
#include "sums.cuh"

namespace attune::cuda::gla_mma {

/// The tiles of one chunk. q and k become operands where they lie, gv becomes its sums.
template <class Shape>
struct Slot {
  __device__ explicit Slot(std::byte* memory)
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

/// The rows of a gate with a value for every channel.
class GateRows {
 public:
  __device__ GateRows(const ChannelGate& gate, const Walk& walk, int channel, int channels)
      : first_(
            static_cast<const std::byte*>(gate.view.rows.data) +
            (row_offset(gate.view.rows, walk.span.batch, walk.first_token(), walk.head) + channel) *
                element_bytes(gate.view.is_f32)),
        step_(gate.view.rows.token * element_bytes(gate.view.is_f32)),
        channels_(channels),
        is_f32_(gate.view.is_f32),
        aligned_(gate.aligned) {}

  /// Begins to copy a chunk's rows of kChannels; zeros fill what does not exist.
  template <class T, int kChannels, int kChunk>
  __device__ __forceinline__ void load(std::byte* to, int row_bytes, const Walk& walk,
                                       int chunk) const {
    if (is_f32_) {
      load_as<float, kChannels, kChunk>(to, row_bytes, walk, chunk);
    } else {
      load_as<T, kChannels, kChunk>(to, row_bytes, walk, chunk);
    }
  }
  __device__ bool is_f32() const { return is_f32_; }

 private:
  __device__ static int element_bytes(bool is_f32) { return is_f32 ? 4 : 2; }

  template <class T, int kChannels, int kChunk>
  __device__ __forceinline__ void load_as(std::byte* to, int row_bytes, const Walk& walk,
                                          int chunk) const {
    constexpr int kBytes = 16;
    constexpr int kElements = kBytes / static_cast<int>(sizeof(T));
    constexpr int kCopies = kChannels / kElements;  // of a row
    const int rows = walk.rows(chunk);
#pragma unroll
    for (int first = 0; first < kChunk * kCopies; first += kRoleThreads) {
      const int copy = first + operand_thread();
      if (kChunk * kCopies % kRoleThreads != 0 && copy >= kChunk * kCopies) break;
      const int row = copy / kCopies;
      const int channel = copy % kCopies * kElements;
      const bool valid = row < rows && channel < channels_;
      const std::byte* const from = first_ + walk.token(walk.position(chunk) + row) * step_;
      std::byte* const place = to + row * row_bytes + copy % kCopies * kBytes;
      if (aligned_) {
        copy_async_16(shared_address(place), from + copy % kCopies * kBytes, valid);
        continue;
      }
#pragma unroll 1
      for (int e = 0; e < kElements; ++e) {
        reinterpret_cast<T*>(place)[e] =
            valid ? reinterpret_cast<const T*>(from)[channel + e] : from_float<T>(0.0F);
      }
    }
  }

  const std::byte* first_;
  std::int64_t step_;  // bytes
  int channels_;       // of the block's range and beyond it
  bool is_f32_;
  bool aligned_;
};

/// The decay that all channels of a token share. Fetched a chunk before it is put, so that nobody
/// waits for it.
template <class T, int kChunk>
class CommonGate {
 public:
  __device__ CommonGate(const Params& p, const Walk& walk)
      : gate_(p.g),
        first_(row_offset(p.g.rows, walk.span.batch, walk.first_token(), walk.head)),
        constant_(constant_decay(p.gamma, walk.sequence, walk.head)) {}

  __device__ void fetch(const Walk& walk, int chunk) {
    exists_ = operand_thread() < kChunk && operand_thread() < walk.rows(chunk);
    if (!exists_ || !gate_.given()) return;
    const std::int64_t at =
        first_ + walk.token(walk.position(chunk) + operand_thread()) * gate_.rows.token;
    bits_ = gate_.is_f32 ? static_cast<const std::uint32_t*>(gate_.rows.data)[at]
                         : static_cast<const std::uint16_t*>(gate_.rows.data)[at];
  }
  __device__ void put(float (&to)[kChunk]) const {
    if (operand_thread() >= kChunk) return;
    const float loaded = gate_.is_f32 ? __uint_as_float(bits_) : unpack<T>(bits_).x;
    to[operand_thread()] = exists_ ? loaded + constant_ : 0.0F;
  }

 private:
  const GateView& gate_;
  const std::int64_t first_;
  const float constant_;
  bool exists_ = false;
  std::uint32_t bits_ = 0;  // as they came: reading them would be waiting for them
};

}  // namespace attune::cuda::gla_mma
