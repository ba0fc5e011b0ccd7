#include <algorithm>
#include <initializer_list>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/element.cuh"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1 << 14;  // each then copies several pieces a thread

/// What a thread does with its piece of a row: to the copy, zeros behind the row's end; back; to
/// what the row has.
enum class Move { kToCopy, kBack, kAdd };

/// Where a row lies in the tensor.
struct RowPlace {
  std::int64_t batch, token, head;

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

/// A thread a piece: to the copy, or of rows that have whole pieces.
template <class T, Move kMove>
__device__ __forceinline__ void move_pieces(const PaddedRows& tensor, std::int64_t rows) {
  const int pieces = tensor.padded / kRowPiece;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < rows * pieces; i += stride) {
    const std::int64_t row = quotient(i, pieces);
    const auto first = static_cast<int>(i - row * pieces) * kRowPiece;
    T* const there = RowPlace(tensor, row).in<T>(tensor) + first;
    Piece<T>& here = *reinterpret_cast<Piece<T>*>(copy_of<T>(tensor, row) + first);
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
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kRowPiece;
  for (std::int64_t first =
           (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kRowPiece;
       first < elements; first += stride) {
    const auto count = static_cast<int>(min(elements - first, std::int64_t{kRowPiece}));
    const std::int64_t row = quotient(first, tensor.channels);
    auto channel = static_cast<int>(first - row * tensor.channels);
    const T* here = copy_of<T>(tensor, row);
    T* const there = reinterpret_cast<T*>(tensor.rows) + first;
    Piece<T> moved;
#pragma unroll
    for (int i = 0; i < kRowPiece; ++i) {
      moved.of[i] = here[channel];  // behind the last element, that one again
      if (i + 1 >= count || ++channel < tensor.channels) continue;
      channel = 0;
      here += tensor.padded;
    }
    if constexpr (kMove == Move::kAdd) {
#pragma unroll
      for (int i = 0; i < kRowPiece; ++i) {
        const T added = there[min(i, count - 1)];
        moved.of[i] = from_float<T>(to_float(added) + to_float(moved.of[i]));
      }
    }
    if (count == kRowPiece) {
      *reinterpret_cast<Piece<T>*>(there) = moved;
      continue;
    }
    for (int i = 0; i < count; ++i) there[i] = moved.of[i];
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
void launch_moves(const PaddedTensors& tensors, cudaStream_t stream) {
  std::int64_t most = 0;
  for (int i = 0; i < tensors.count; ++i) {
    const PaddedRows& tensor = tensors.of[static_cast<std::size_t>(i)];
    const auto& sizes = tensor.sizes;
    most = std::max(most, sizes[0] * sizes[1] * sizes[2] * (tensor.padded / kRowPiece));
  }
  const std::int64_t blocks = std::min<std::int64_t>((most + kThreads - 1) / kThreads, kMostBlocks);
  launch<move_rows<T, kMove>>(
      {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(tensors.count)),
       .block = kThreads,
       .overlaps_previous = true},
      stream, tensors);
}

/// Whether its rows are of whole pieces that start at multiples of 16 bytes.
template <class Tensor>
bool has_pieces(const Tensor& tensor) {
  constexpr std::int64_t kBytes = 16;
  bool whole = tensor.size(3) % kRowPiece == 0 &&
               reinterpret_cast<std::uintptr_t>(tensor.data) % kBytes == 0;
  for (int dim = 0; dim < 3; ++dim) {
    const std::int64_t bytes =
        tensor.stride(dim) * static_cast<std::int64_t>(size_of(tensor.dtype));
    whole = whole && (tensor.size(dim) == 1 || bytes % kBytes == 0);
  }
  return whole;
}

/// Whether its elements lie one behind the other, from a multiple of 16 bytes on.
template <class Tensor>
bool is_dense(const Tensor& tensor) {
  constexpr std::int64_t kBytes = 16;
  bool dense = reinterpret_cast<std::uintptr_t>(tensor.data) % kBytes == 0;
  std::int64_t elements = tensor.size(3);
  for (int dim = 2; dim >= 0; --dim) {
    dense = dense && (tensor.size(dim) == 1 || tensor.stride(dim) == elements);
    elements *= tensor.size(dim);
  }
  return dense;
}

/// Places the copy of a tensor and makes `tensor` a view of it.
template <class Tensor>
PaddedRows replace(Tensor& tensor, WorkspaceParts& parts) {
  const std::int64_t padded = padded_channels(tensor.size(3));
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t rows = tensor.size(0) * tensor.size(1) * tensor.size(2);
  PaddedRows made{.rows = static_cast<std::byte*>(const_cast<void*>(tensor.data)),
                  .sizes = {tensor.size(0), tensor.size(1), tensor.size(2)},
                  .strides = {tensor.stride(0), tensor.stride(1), tensor.stride(2)},
                  .copy = parts.take<std::byte>(rows * padded * width),
                  .channels = static_cast<int>(tensor.size(3)),
                  .padded = static_cast<int>(padded),
                  .width = static_cast<int>(width)};
  made.has_pieces = has_pieces(tensor);
  made.is_dense = is_dense(tensor);
  const std::int64_t of_token = tensor.size(2) * padded;
  tensor = Tensor(made.copy, tensor.dtype, tensor.shape,
                  Extents{tensor.size(1) * of_token, of_token, padded, 1}, tensor.device);
  return made;
}

// ---- which tensors: f(tensor, its sizes, the gate that it is), in one order

using Problem = ops::RecurrentAttentionProblem;
using ForwardArgs = ops::RecurrentAttentionArgs;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

struct Sizes {
  std::int64_t Problem::*heads;
  std::int64_t Problem::*channels;
};
constexpr Sizes kOfQueries{&Problem::H, &Problem::K};
constexpr Sizes kOfKeys{&Problem::Hkv, &Problem::K};
constexpr Sizes kOfValues{&Problem::Hkv, &Problem::V};
constexpr Sizes kOfOutputs{&Problem::H, &Problem::V};
constexpr int kNoGate = 0;

template <class F>
void for_each_input(ForwardArgs& args, F&& f) {
  f(args.q, kOfQueries, kNoGate);
  f(args.k, kOfKeys, kNoGate);
  f(args.v, kOfValues, kNoGate);
  f(args.gk, kOfQueries, ops::kGateGk);
  f(args.gv, kOfOutputs, ops::kGateGv);
}
template <class F>
void for_each_input(BackwardArgs& args, F&& f) {
  f(args.q, kOfQueries, kNoGate);
  f(args.k, kOfKeys, kNoGate);
  f(args.v, kOfValues, kNoGate);
  f(args.d_o, kOfOutputs, kNoGate);
}

template <class F>
void for_each_output(ForwardArgs& args, F&& f) {
  f(args.o, kOfOutputs, kNoGate);
}
template <class F>
void for_each_output(BackwardArgs& args, F&& f) {
  f(args.dq, kOfQueries, kNoGate);
  f(args.dk, kOfKeys, kNoGate);
  f(args.dv, kOfValues, kNoGate);
}

/// Adds up the bytes of the copies that a problem needs.
auto counting(const Problem& problem, WorkspaceParts& parts) {
  return [&](const auto&, const Sizes& sizes, int gate) {
    if (gate != kNoGate && (problem.gates & gate) == 0) return;
    const std::size_t width = gate != kNoGate ? sizeof(float) : size_of(problem.dtype);
    parts.take(problem.B * problem.T * problem.*sizes.heads *
               padded_channels(problem.*sizes.channels) * static_cast<std::int64_t>(width));
  };
}

/// Whether a tensor map's descriptor can say where its rows lie.
bool has_map(const ConstTensorView& tensor) {
  for (int dim = 0; dim < 3; ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) <= 0) return false;
  }
  return true;
}
bool have_maps(std::initializer_list<ConstTensorView> tensors) {
  return std::ranges::all_of(tensors, has_map);
}

/// Places the copies of tensors that are given, of all or of those that need one, and makes the
/// tensors views of them.
auto replacing(PaddedTensors& tensors, WorkspaceParts& parts, bool all) {
  const auto add = [&tensors, &parts, all](auto& tensor) {
    if (!all && has_pieces(tensor) && has_map(tensor)) return;
    tensors.of[static_cast<std::size_t>(tensors.count++)] = replace(tensor, parts);
  };
  return [add]<class Tensor>(Tensor& tensor, const Sizes&, int) {
    if constexpr (requires { tensor.has_value(); }) {
      if (tensor) add(*tensor);
    } else {
      add(tensor);
    }
  };
}

}  // namespace

bool has_tensor_maps(const ForwardArgs& args) {
  return have_maps({args.q, args.k, args.v, args.o});
}
bool has_tensor_maps(const BackwardArgs& args) {
  return have_maps({args.q, args.k, args.v, *args.d_o, args.dq, args.dk, args.dv});
}

template <class Args>
std::size_t PaddedOutput::bytes(const Problem& problem) {
  Args none;
  WorkspaceParts parts(nullptr);
  for_each_output(none, counting(problem, parts));
  return parts.used();
}

template <class Args>
PaddedOutput::PaddedOutput(Args& args, std::byte* workspace, bool all) : dtype_(args.q.dtype) {
  WorkspaceParts parts(workspace);
  for_each_output(args, replacing(tensors_, parts, all));
}

void PaddedOutput::copy(cudaStream_t stream) const {
  launch_moves<__half, Move::kBack>(tensors_, stream);  // bits of any 16-bit type
}

void PaddedOutput::add(cudaStream_t stream) const {
  with_element<float, __half, __nv_bfloat16>(
      dtype_, [&]<class T>() { launch_moves<T, Move::kAdd>(tensors_, stream); });
}

template <class Args>
std::size_t PaddedInputs::bytes(const Problem& problem) {
  Args none;
  WorkspaceParts parts(nullptr);
  for_each_input(none, counting(problem, parts));
  return parts.used();
}

template <class Args>
PaddedInputs::PaddedInputs(Args& args, std::byte* workspace) {
  WorkspaceParts parts(workspace);
  for_each_input(args, replacing(tensors_, parts, false));
}

void PaddedInputs::copy(cudaStream_t stream) const {
  launch_moves<__half, Move::kToCopy>(tensors_, stream);  // bits of any 16-bit type
}

template std::size_t PaddedOutput::bytes<ForwardArgs>(const Problem&);
template std::size_t PaddedOutput::bytes<BackwardArgs>(const Problem&);
template PaddedOutput::PaddedOutput(ForwardArgs&, std::byte*, bool);
template PaddedOutput::PaddedOutput(BackwardArgs&, std::byte*, bool);
template std::size_t PaddedInputs::bytes<ForwardArgs>(const Problem&);
template std::size_t PaddedInputs::bytes<BackwardArgs>(const Problem&);
template PaddedInputs::PaddedInputs(ForwardArgs&, std::byte*);
template PaddedInputs::PaddedInputs(BackwardArgs&, std::byte*);

}  // namespace attune::cuda
