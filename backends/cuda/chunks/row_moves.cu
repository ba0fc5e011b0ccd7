#include <algorithm>
#include <span>

#include "cuda/chunks/row_moves.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/tiles/element.cuh"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda {
namespace {

constexpr int kThreads = 256;
/// At most: then a thread has several pieces.
constexpr std::int64_t kBlocksOfMultiprocessor = 16;

/// What a thread does with its piece of a row: to the copy, zeros behind the row's end; back; to
/// what the row has.
enum class Move { kToCopy, kBack, kAdd };

/// Where a row lies in the tensor.
struct RowPlace {
  std::int64_t batch, token, head;

  RowPlace() = default;
  __device__ RowPlace(const PaddedRows& tensor, std::int64_t row) {
    const std::int64_t of_tokens = quotient(row, tensor.sizes[2]);
    batch = quotient(of_tokens, tensor.sizes[1]);
    token = of_tokens - batch * tensor.sizes[1];
    head = row - of_tokens * tensor.sizes[2];
  }
  __device__ void next(const PaddedRows& tensor) {
    if (++head < tensor.sizes[2]) return;
    head = 0;
    if (++token < tensor.sizes[1]) return;
    token = 0;
    ++batch;
  }
  /// Some rows further on.
  __device__ RowPlace further(const PaddedRows& tensor, int rows) const {
    RowPlace to;
    const std::int64_t tokens = small_quotient(head + rows, tensor.sizes[2]);
    const std::int64_t batches = quotient(token + tokens, tensor.sizes[1]);
    to.head = head + rows - tokens * tensor.sizes[2];
    to.token = token + tokens - batches * tensor.sizes[1];
    to.batch = batch + batches;
    return to;
  }
  template <class T>
  __device__ T* in(const PaddedRows& tensor) const {
    return reinterpret_cast<T*>(tensor.rows) + batch * tensor.strides[0] +
           token * tensor.strides[1] + head * tensor.strides[2];
  }
};
template <class T>
__device__ T* copy_of(const PaddedRows& tensor, std::int64_t row) {
  return reinterpret_cast<T*>(tensor.copy) + row * tensor.padded;
}

template <class T>
struct alignas(16) Piece {
  T of[kRowPiece];
};

/// A piece of a row that starts anywhere, zeros behind the row's end. No load stands behind a
/// branch: all are under way together.
template <class T>
__device__ __forceinline__ Piece<T> loaded_piece(const T* there, int channels) {
  Piece<T> piece;
#pragma unroll
  for (int i = 0; i < kRowPiece; ++i) piece.of[i] = there[min(i, channels - 1)];
#pragma unroll
  for (int i = 0; i < kRowPiece; ++i) {
    if (i >= channels) piece.of[i] = from_float<T>(0.0F);
  }
  return piece;
}
/// The same of 16 bits, by words, but for a last element that ends none: behind it may be nothing.
__device__ __forceinline__ Piece<__half> loaded_piece(const __half* there, int channels) {
  constexpr int kPairs = kRowPiece / 2;
  const auto address = reinterpret_cast<std::uintptr_t>(there);
  const int begins_in_word = static_cast<int>(address / sizeof(__half) % 2);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(there - begins_in_word);
  const int whole = (begins_in_word + channels) / 2;  // words
  const std::uint32_t last = __half_as_ushort(there[min(channels, kRowPiece) - 1]);
  std::uint32_t word[kPairs + 1];
#pragma unroll
  for (int i = 0; i <= kPairs; ++i) {
    word[i] = i == whole ? last : 0;
    if (i < whole) word[i] = words[i];
  }
  const unsigned bytes = begins_in_word == 0 ? 0x3210 : 0x5432;
  Piece<__half> piece;
  auto* const pairs = reinterpret_cast<std::uint32_t*>(piece.of);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int left = channels - 2 * i;
    const unsigned kept = left > 1 ? 0xffffffffU : left == 1 ? 0xffffU : 0U;
    pairs[i] = __byte_perm(word[i], word[i + 1], bytes) & kept;
  }
  return piece;
}

/// The first of the block's pieces. They follow each other, so that where the first one lies is found
/// once, by divisions in 64 bits, and the others in 32 bits from there.
__device__ std::int64_t first_of_block(const PaddedRows& tensor) {
  return blockIdx.x * tensor.of_block;
}
/// How many of so many it has.
__device__ int count_of_block(const PaddedRows& tensor, std::int64_t pieces) {
  return static_cast<int>(
      max(min(pieces - first_of_block(tensor), tensor.of_block), std::int64_t{0}));
}

/// A thread a piece: to the copy, or of rows that have whole pieces.
template <class T, Move kMove>
__device__ __forceinline__ void move_pieces(const PaddedRows& tensor, std::int64_t rows) {
  const int pieces = tensor.padded / kRowPiece;
  const int count = count_of_block(tensor, rows * pieces);
  const std::int64_t first_row = quotient(first_of_block(tensor), pieces);
  const auto skipped = static_cast<int>(first_of_block(tensor) - first_row * pieces);
  T* const dense = reinterpret_cast<T*>(tensor.rows) + first_row * tensor.channels;
  RowPlace place;
  if (!tensor.is_dense) place = RowPlace(tensor, first_row);
  T* const first_here = copy_of<T>(tensor, first_row);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const auto row = static_cast<int>(small_quotient(skipped + i, pieces));
    const int first = (skipped + i - row * pieces) * kRowPiece;
    T* const there = (tensor.is_dense ? dense + std::int64_t{row} * tensor.channels
                                      : place.further(tensor, row).in<T>(tensor)) +
                     first;
    Piece<T>& here =
        *reinterpret_cast<Piece<T>*>(first_here + std::int64_t{row} * tensor.padded + first);
    if constexpr (kMove == Move::kToCopy) {
      here = loaded_piece(there, tensor.channels - first);
      continue;
    }
    Piece<T>& whole = *reinterpret_cast<Piece<T>*>(there);
    Piece<T> moved = here;
    if constexpr (kMove == Move::kAdd) {
      const Piece<T> added = whole;
#pragma unroll
      for (int e = 0; e < kRowPiece; ++e) {
        moved.of[e] = from_float<T>(to_float(added.of[e]) + to_float(moved.of[e]));
      }
    }
    whole = moved;
  }
}

/// A warp a row, lanes at neighbouring elements: stores of eight elements a thread, which start
/// anywhere, would each touch as many sectors as a warp has lanes. Of many rows a warp has some
/// that follow each other, whose places are not looked for one by one.
template <class T, Move kMove>
__device__ __forceinline__ void move_elements(const PaddedRows& tensor, std::int64_t rows) {
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr std::int64_t kMostRows = 8;  // in a row
  constexpr int kAtOnce = 8;             // loads of a lane
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kWarps;
  const std::int64_t of_warp = min(quotient(rows + warps - 1, warps), kMostRows);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (std::int64_t first =
           (static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize) * of_warp;
       first < rows; first += warps * of_warp) {
    RowPlace place(tensor, first);
    for (std::int64_t row = first; row < min(first + of_warp, rows); ++row, place.next(tensor)) {
      const T* const here = copy_of<T>(tensor, row);
      T* const there = place.in<T>(tensor);
      for (int channel = lane; channel < tensor.channels; channel += kAtOnce * kWarpSize) {
        T moved[kAtOnce];
        T added[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          const int at = min(channel + n * kWarpSize, tensor.channels - 1);
          moved[n] = here[at];
          if constexpr (kMove == Move::kAdd) added[n] = there[at];
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          const int at = channel + n * kWarpSize;
          if (at >= tensor.channels) continue;
          if constexpr (kMove == Move::kAdd) {
            moved[n] = from_float<T>(to_float(added[n]) + to_float(moved[n]));
          }
          there[at] = moved[n];
        }
      }
    }
  }
}

/// The same of a tensor without gaps: a thread eight elements of it, of one row or several, with one
/// store.
template <class T, Move kMove>
__device__ __forceinline__ void move_dense(const PaddedRows& tensor, std::int64_t rows) {
  const std::int64_t elements = rows * tensor.channels;
  const int pieces = count_of_block(tensor, (elements + kRowPiece - 1) / kRowPiece);
  const std::int64_t first = first_of_block(tensor) * kRowPiece;
  const std::int64_t first_row = quotient(first, tensor.channels);
  const auto skipped = static_cast<int>(first - first_row * tensor.channels);
  const T* const first_here = copy_of<T>(tensor, first_row);
  T* const first_there = reinterpret_cast<T*>(tensor.rows) + first;
  const int gap = tensor.padded - tensor.channels;
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kThreads) {
    const int begin = i * kRowPiece;
    const auto row = static_cast<int>(small_quotient(skipped + begin, tensor.channels));
    int channel = skipped + begin - row * tensor.channels;
    const T* const here = first_here + std::int64_t{row} * tensor.padded + channel;
    T* const there = first_there + begin;
    const auto count = static_cast<int>(min(elements - first - begin, std::int64_t{kRowPiece}));
    Piece<T> moved;
    int at = 0;
#pragma unroll
    for (int e = 0; e < kRowPiece; ++e) {
      moved.of[e] = here[at];  // behind the last element, that one again
      if (e + 1 >= count) continue;
      ++at;
      if (++channel < tensor.channels) continue;
      channel = 0;
      at += gap;
    }
    if constexpr (kMove == Move::kAdd) {
#pragma unroll
      for (int e = 0; e < kRowPiece; ++e) {
        const T added = there[min(e, count - 1)];
        moved.of[e] = from_float<T>(to_float(added) + to_float(moved.of[e]));
      }
    }
    if (count == kRowPiece) {
      *reinterpret_cast<Piece<T>*>(there) = moved;
      continue;
    }
#pragma unroll
    for (int e = 0; e < kRowPiece; ++e) {
      if (e < count) there[e] = moved.of[e];
    }
  }
}

template <class T, Move kMove>
__device__ __forceinline__ void move_tensor(const PaddedRows& tensor) {
  const std::int64_t rows = tensor.sizes[0] * tensor.sizes[1] * tensor.sizes[2];
  if constexpr (kMove != Move::kToCopy) {
    if (!tensor.has_pieces) {
      return tensor.is_dense ? move_dense<T, kMove>(tensor, rows)
                             : move_elements<T, kMove>(tensor, rows);
    }
  }
  move_pieces<T, kMove>(tensor, rows);
}

/// grid: pieces x tensors. T is the type of those whose elements have its width; others are fp32.
template <class T, Move kMove>
__global__ __launch_bounds__(kThreads,
                             4) void move_rows(const __grid_constant__ PaddedTensors tensors) {
  take_over_from_previous_launch();
  const PaddedRows& tensor = tensors.of[blockIdx.y];
  if (tensor.width == sizeof(T)) {
    move_tensor<T, kMove>(tensor);
  } else {
    move_tensor<float, kMove>(tensor);
  }
}

template <class T, Move kMove>
void launch_moves(PaddedTensors tensors, cudaStream_t stream) {
  const auto pieces_of = [](const PaddedRows& tensor) {
    const auto& sizes = tensor.sizes;
    return sizes[0] * sizes[1] * sizes[2] * (tensor.padded / kRowPiece);
  };
  const std::span given(tensors.of.data(), static_cast<std::size_t>(tensors.count));
  std::int64_t most = 0;
  for (const PaddedRows& tensor : given) most = std::max(most, pieces_of(tensor));
  if (most == 0) return;
  const std::int64_t blocks =
      std::min(ceil_div(most, kThreads), kBlocksOfMultiprocessor * multiprocessor_count());
  for (PaddedRows& tensor : given) {
    tensor.of_block = ceil_div(ceil_div(pieces_of(tensor), blocks), kThreads) * kThreads;
  }
  launch<move_rows<T, kMove>>(
      {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(tensors.count)),
       .block = kThreads,
       .overlaps_previous = true},
      stream, tensors);
}

}  // namespace

void copy_rows(const PaddedTensors& tensors, cudaStream_t stream) {
  launch_moves<__half, Move::kToCopy>(tensors, stream);  // bits of any 16-bit type
}

void put_rows_back(const PaddedTensors& tensors, cudaStream_t stream) {
  launch_moves<__half, Move::kBack>(tensors, stream);  // the same
}

void add_rows(const PaddedTensors& tensors, DType dtype, cudaStream_t stream) {
  with_element<float, __half, __nv_bfloat16>(
      dtype, [&]<class T>() { launch_moves<T, Move::kAdd>(tensors, stream); });
}

}  // namespace attune::cuda
