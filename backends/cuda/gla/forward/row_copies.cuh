// Rows of a chunk on their way to shared memory.
#pragma once

#include "cuda/gla/decays.cuh"

namespace attune::cuda::gla::forward {

/// 16 bytes of two rows of a panel, as a thread copies them: zeros where there is no token, and
/// for channels that a row has not, as what is behind it may be anything, or not be there.
template <class T>
class RowCopies {
 public:
  __device__ RowCopies(const ConstTokenView& view, const HeadChunk& chunk, std::int64_t head) {
    const int row = chunk.row(position());
    first_ = static_cast<const T*>(view.data) +
             row_offset(view, chunk.batch, chunk.token + row, head) + channel();
    step_ = (chunk.reverse ? -kAtOnce : kAtOnce) * view.token;
    exists_[0] = chunk.has(position());
    exists_[1] = chunk.has(position() + kAtOnce);
  }
  /// Starts on channels from `first` on, of so many.
  __device__ __forceinline__ void start(TokenTile<kPanelChannels>& tile, int first,
                                        int channels) const {
    const bool is_whole = channels - first - channel() >= kPieceChannels;
    const std::uint32_t to = shared_address(&tile) + tile_byte(position(), channel());
    copy_async_16(to, first_ + first, is_whole && exists_[0]);
    copy_async_16(to + kAtOnce * kPanelRowBytes, first_ + first + step_, is_whole && exists_[1]);
  }
  /// What is left of rows that do not end with 16 bytes, once copies are there.
  __device__ __forceinline__ void finish(TokenTile<kPanelChannels>& tile, int first,
                                         int channels) const {
    const int left = channels - first - channel();
    if (left <= 0 || left >= kPieceChannels) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!exists_[i]) continue;
      const T* const from = first_ + first + i * step_;
      T* const to =
          reinterpret_cast<T*>(tile.bytes[0] + tile_byte(position() + i * kAtOnce, channel()));
#pragma unroll 1
      for (int e = 0; e < left; ++e) to[e] = from[e];
    }
  }

 private:
  static constexpr int kPieceChannels = 8;
  static constexpr int kPieces = kPanelChannels / kPieceChannels;  // of a row
  static constexpr int kAtOnce = kBlockThreads / kPieces;          // rows
  static_assert(2 * kAtOnce == kChunkTokens);
  __device__ static int position() { return static_cast<int>(threadIdx.x) / kPieces; }
  __device__ static int channel() {
    return static_cast<int>(threadIdx.x) % kPieces * kPieceChannels;
  }
  const T* first_;
  std::int64_t step_;
  bool exists_[2];
};

}  // namespace attune::cuda::gla::forward
