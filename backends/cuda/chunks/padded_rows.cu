#include <algorithm>
#include <type_traits>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/element.cuh"

namespace attune::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1 << 14;  // each then copies several pieces a thread

struct Copies {
  std::array<PaddedRows, 5> of;
};

/// What a thread does with its piece of a row: to the copy, zeros behind the row's end; back; to
/// what the row has.
enum class Move { kToCopy, kBack, kAdd };

template <class T, Move kMove>
__device__ __forceinline__ void move_piece(const PaddedRows& tensor, std::int64_t row, int piece) {
  struct alignas(16) Piece {
    T of[kRowPiece];
  };
  const std::int64_t head = row % tensor.sizes[2];
  const std::int64_t token = row / tensor.sizes[2] % tensor.sizes[1];
  const std::int64_t batch = row / tensor.sizes[2] / tensor.sizes[1];
  const int first = piece * kRowPiece;
  T* const there = reinterpret_cast<T*>(tensor.rows) + batch * tensor.strides[0] +
                   token * tensor.strides[1] + head * tensor.strides[2] + first;
  Piece& here =
      *reinterpret_cast<Piece*>(reinterpret_cast<T*>(tensor.copy) + row * tensor.padded + first);
  Piece moved;
  if constexpr (kMove != Move::kToCopy) moved = here;
#pragma unroll
  for (int i = 0; i < kRowPiece; ++i) {
    const bool exists = first + i < tensor.channels;
    if constexpr (kMove == Move::kToCopy) {
      moved.of[i] = exists ? there[i] : from_float<T>(0.0F);
    } else if constexpr (kMove == Move::kBack) {
      if (exists) there[i] = moved.of[i];
    } else {
      if (exists) there[i] = from_float<T>(to_float(there[i]) + to_float(moved.of[i]));
    }
  }
  if constexpr (kMove == Move::kToCopy) here = moved;
}

/// grid: pieces x tensors. T is the type of those whose elements have its width; others are fp32.
template <class T, Move kMove>
__global__ __launch_bounds__(kThreads) void move_rows(const __grid_constant__ Copies copies) {
  const PaddedRows& tensor = copies.of[blockIdx.y];
  const int pieces = tensor.padded / kRowPiece;
  const std::int64_t count = tensor.sizes[0] * tensor.sizes[1] * tensor.sizes[2] * pieces;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const auto piece = static_cast<int>(i % pieces);
    if (tensor.width == sizeof(T)) {
      move_piece<T, kMove>(tensor, i / pieces, piece);
    } else {
      move_piece<float, kMove>(tensor, i / pieces, piece);
    }
  }
}

template <class T, Move kMove>
void launch_moves(const PaddedRows* tensors, int count, cudaStream_t stream) {
  Copies copies;
  std::int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    copies.of[static_cast<std::size_t>(i)] = tensors[i];
    const auto& sizes = tensors[i].sizes;
    most = std::max(most, sizes[0] * sizes[1] * sizes[2] * (tensors[i].padded / kRowPiece));
  }
  const std::int64_t blocks = std::min<std::int64_t>((most + kThreads - 1) / kThreads, kMostBlocks);
  launch<move_rows<T, kMove>>(
      {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)),
       .block = kThreads},
      stream, copies);
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
  const std::int64_t of_token = tensor.size(2) * padded;
  tensor = Tensor(made.copy, tensor.dtype, tensor.shape,
                  Extents{tensor.size(1) * of_token, of_token, padded, 1}, tensor.device);
  return made;
}

}  // namespace

bool has_tensor_maps(const ops::RecurrentAttentionArgs& args) {
  const auto fits = [](const ConstTensorView& tensor) {
    for (int dim = 0; dim < 3; ++dim) {
      if (tensor.size(dim) > 1 && tensor.stride(dim) <= 0) return false;
    }
    return true;
  };
  return fits(args.q) && fits(args.k) && fits(args.v) && fits(args.o);
}

std::size_t PaddedOutput::bytes(const ops::RecurrentAttentionProblem& problem) {
  const auto width = static_cast<std::int64_t>(size_of(problem.dtype));
  WorkspaceParts parts(nullptr);
  parts.take(problem.B * problem.T * problem.H * padded_channels(problem.V) * width);
  return parts.used();
}

PaddedOutput::PaddedOutput(ops::RecurrentAttentionArgs& args, std::byte* workspace)
    : dtype_(args.o.dtype), packed_(args.cu_seqlens.has_value()) {
  WorkspaceParts parts(workspace);
  rows_ = replace(args.o, parts);
}

void PaddedOutput::clear(cudaStream_t stream) const {
  if (!packed_) return;
  const std::int64_t rows = rows_.sizes[0] * rows_.sizes[1] * rows_.sizes[2];
  const auto bytes = static_cast<std::size_t>(rows * rows_.padded * rows_.width);
  check(cudaMemsetAsync(rows_.copy, 0, bytes, stream));
}

void PaddedOutput::copy(cudaStream_t stream) const {
  launch_moves<__half, Move::kBack>(&rows_, 1, stream);  // bits of any 16-bit type
}

void PaddedOutput::add(cudaStream_t stream) const {
  with_element<__half, __nv_bfloat16>(
      dtype_, [&]<class T>() { launch_moves<T, Move::kAdd>(&rows_, 1, stream); });
}

std::size_t PaddedInputs::bytes(const ops::RecurrentAttentionProblem& problem) {
  const std::int64_t tokens = problem.B * problem.T;
  const std::int64_t keys = padded_channels(problem.K);
  const std::int64_t values = padded_channels(problem.V);
  const auto width = static_cast<std::int64_t>(size_of(problem.dtype));
  constexpr std::int64_t kGateBytes = sizeof(float);
  WorkspaceParts parts(nullptr);
  for (const std::int64_t elements : {problem.H * keys, problem.Hkv * keys, problem.Hkv * values}) {
    parts.take(tokens * elements * width);
  }
  if ((problem.gates & ops::kGateGk) != 0) parts.take(tokens * problem.H * keys * kGateBytes);
  if ((problem.gates & ops::kGateGv) != 0) parts.take(tokens * problem.H * values * kGateBytes);
  return parts.used();
}

PaddedInputs::PaddedInputs(ops::RecurrentAttentionArgs& args, std::byte* workspace) {
  WorkspaceParts parts(workspace);
  const auto take = [&](ConstTensorView& tensor) {
    rows_[static_cast<std::size_t>(count_++)] = replace(tensor, parts);
  };
  take(args.q);
  take(args.k);
  take(args.v);
  if (args.gk) take(*args.gk);
  if (args.gv) take(*args.gv);
}

void PaddedInputs::copy(cudaStream_t stream) const {
  launch_moves<__half, Move::kToCopy>(rows_.data(), count_, stream);  // bits of any 16-bit type
}

}  // namespace attune::cuda
