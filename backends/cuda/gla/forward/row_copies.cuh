// Rows of a chunk on their way to shared memory.
#pragma once

#include "cuda/gla/decays.cuh"

namespace attune::cuda::gla::forward {

/// Pieces of 16 bytes of a panel's rows, as a thread copies them: of the eight rows that its warp has, so
/// that a warp's rows are there when its own copies are. Zeros where there is no token, and for channels
/// that a row has not, as what is behind it may be anything, or not be there.
template <class Element>
class RowCopies {
 public:
  /// Panels of a tile that rows of a panel's channels take.
  static constexpr int kTilePanels = sizeof(Element) / 2;

  /// Of a chunk's rows from `first` on, a number of elements apart.
  __device__ RowCopies(const std::byte* first, std::int64_t step, const HeadChunk& chunk)
      : row_(first_row(chunk.reverse)),
        rows_(chunk.rows),
        from_(reinterpret_cast<const Element*>(first) + row_ * step + channel()),
        step_(kAtOnce * step) {}
  /// Starts on channels from `first` on, of so many.
  __device__ __forceinline__ void start(std::uint32_t tile, int first, int channels) const {
    const bool is_whole = channels - first - channel() >= kPieceChannels;
    const std::uint32_t to = tile + tile_byte(row_, channel() * kTilePanels);
    const Element* from = from_ + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i, from += step_) {
      copy_async_16((to ^ i * kAtOnce * 16) + i * kAtOnce * kPanelRowBytes, from,
                    is_whole && row_ + i * kAtOnce < rows_);
    }
  }
  /// What is left of rows that do not end with 16 bytes, once copies are there.
  __device__ __forceinline__ void finish(unsigned char* tile, int first, int channels) const {
    const int left = channels - first - channel();
    if (left <= 0 || left >= kPieceChannels) return;
#pragma unroll 1
    for (int i = 0; i < kCount && row_ + i * kAtOnce < rows_; ++i) {
      const Element* const from = from_ + first + i * step_;
      auto* const to =
          reinterpret_cast<Element*>(tile + tile_byte(row_ + i * kAtOnce, channel() * kTilePanels));
      for (int e = 0; e < left; ++e) to[e] = from[e];
    }
  }

 private:
  static constexpr int kPieceChannels = 16 / sizeof(Element);
  static constexpr int kPieces = kPanelChannels / kPieceChannels;  // of a row
  static constexpr int kAtOnce = kWarpSize / kPieces;              // rows of a warp
  static constexpr int kCount = kRun / kAtOnce;
  static_assert(kCount * kAtOnce == kRun);
  __device__ static int first_row(bool reverse) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    return (reverse ? kBlockWarps - 1 - warp : warp) * kRun +
           static_cast<int>(threadIdx.x) % kWarpSize / kPieces;
  }
  __device__ static int channel() {
    return static_cast<int>(threadIdx.x) % kPieces * kPieceChannels;
  }
  int row_;
  int rows_;
  const Element* from_;
  std::int64_t step_;
};

}  // namespace attune::cuda::gla::forward
