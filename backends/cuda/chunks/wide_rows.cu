#include <algorithm>
#include <bit>

#include "cuda/chunks/wide_rows.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/element.cuh"
#include "cuda/tiles/ptx.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda {
inline namespace wide_rows_kernels {  // nvcc names an anonymous one anew in every build

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 14;  // each then copies several rows a warp

/// The way that a launch copies.
enum class Way { kWidens, kRounds };

/// Where a row of the copy lies in the tensor.
__device__ __forceinline__ std::int64_t place_of(const WideTensor& tensor, std::int64_t row) {
  const std::int64_t of_tokens = quotient(row, tensor.sizes[2]);
  const std::int64_t batch = quotient(of_tokens, tensor.sizes[1]);
  return batch * tensor.strides[0] + (of_tokens - batch * tensor.sizes[1]) * tensor.strides[1] +
         (row - of_tokens * tensor.sizes[2]) * tensor.strides[2];
}

/// Copies elements of a row that are `apart`, from `first` on; all loads of several are under way
/// together.
template <class To, class From>
__device__ __forceinline__ void copy_row(To* to, const From* from, int first, int apart,
                                         int channels) {
  constexpr int kAtOnce = 4;
  for (int channel = first; channel < channels; channel += kAtOnce * apart) {
    From moved[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) moved[n] = from[min(channel + n * apart, channels - 1)];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int at = channel + n * apart;
      if (at < channels) to[at] = from_float<To>(to_float(moved[n]));
    }
  }
}

/// grid: rows x tensors. A warp a row, or several short ones.
template <class T, Way kWay>
__global__ __launch_bounds__(kThreads) void copy_wide_rows(
    const __grid_constant__ WideTensors tensors) {
  const WideTensor& tensor = tensors.of[blockIdx.y];
  const int lanes = tensor.lanes;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const std::int64_t of_block = kThreads / lanes;
  for (std::int64_t row = blockIdx.x * of_block + static_cast<int>(threadIdx.x) / lanes;
       row < tensor.row_count(); row += gridDim.x * of_block) {
    T* const there = static_cast<T*>(tensor.rows) + place_of(tensor, row);
    float* const here = tensor.copy + row * tensor.channels;
    if constexpr (kWay == Way::kWidens) {
      copy_row(here, there, lane, lanes, tensor.channels);
    } else {
      copy_row(there, here, lane, lanes, tensor.channels);
    }
  }
}

template <Way kWay>
void launch_copies(DType dtype, const WideTensors& tensors, cudaStream_t stream) {
  std::int64_t most = 0;
  for (const WideTensor& tensor : tensors.of) {
    most = std::max(most, tensor.row_count() * tensor.lanes);
  }
  const std::int64_t blocks = std::min(ceil_div(most, kThreads), kMostBlocks);
  with_element<__half, __nv_bfloat16>(dtype, [&]<class T>() {
    launch<copy_wide_rows<T, kWay>>(
        {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(tensors.count)),
         .block = dim3(kThreads)},
        stream, tensors);
  });
}

/// Places the copy of a tensor and makes `tensor` a view of it.
template <class Tensor>
void replace(Tensor& tensor, WideTensors& tensors, WorkspaceParts& parts) {
  WideTensor& made = tensors.of[static_cast<std::size_t>(tensors.count++)];
  made.rows = const_cast<void*>(static_cast<const void*>(tensor.data));
  made.sizes = {tensor.size(0), tensor.size(1), tensor.size(2)};
  made.strides = {tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  if (tensor.rank() == 4) made.channels = static_cast<int>(tensor.size(3));
  made.lanes =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::min(made.channels, kWarpSize))));
  made.copy = parts.take<float>(made.row_count() * made.channels * std::int64_t{sizeof(float)});
  tensor = Tensor(made.copy, DType::kF32, tensor.shape, tensor.device);
}

/// A gate, which may be f32 as it is.
void replace_gate(std::optional<ConstTensorView>& gate, WideTensors& tensors,
                  WorkspaceParts& parts) {
  if (gate && gate->dtype != DType::kF32) replace(*gate, tensors, parts);
}

}  // namespace wide_rows_kernels

ops::RecurrentAttentionProblem WideRows::made_of(ops::RecurrentAttentionProblem problem) {
  problem.dtype = DType::kF32;
  problem.gate_dtype = ops::GateDType::kF32;
  problem.layout = ops::Layout::kBthd;
  problem.aligned = true;
  return problem;
}

std::size_t WideRows::bytes(const Problem& problem) {
  WorkspaceParts parts(nullptr);
  const auto take = [&](std::int64_t heads, std::int64_t channels) {
    parts.take(problem.B * problem.T * heads * channels * std::int64_t{sizeof(float)});
  };
  for (int tensor = 0; tensor < 2; ++tensor) {  // q and dq; k and dk; v and dv
    take(problem.H, problem.K);
    take(problem.Hkv, problem.K);
    take(problem.Hkv, problem.V);
  }
  if (problem.d_o) take(problem.H, problem.V);
  if (problem.gate_dtype == ops::GateDType::kF32) return parts.used();
  if ((problem.gates & ops::kGateG) != 0) take(problem.H, 1);
  if ((problem.gates & ops::kGateGk) != 0) take(problem.H, problem.K);
  if ((problem.gates & ops::kGateGv) != 0) take(problem.H, problem.V);
  return parts.used();
}

WideRows::WideRows(const Problem& problem, Args& args, std::byte* workspace)
    : dtype_(problem.dtype) {
  WorkspaceParts parts(workspace);
  replace(args.q, inputs_, parts);
  replace(args.k, inputs_, parts);
  replace(args.v, inputs_, parts);
  if (args.d_o) replace(*args.d_o, inputs_, parts);
  replace_gate(args.g, inputs_, parts);
  replace_gate(args.gk, inputs_, parts);
  replace_gate(args.gv, inputs_, parts);
  replace(args.dq, outputs_, parts);
  replace(args.dk, outputs_, parts);
  replace(args.dv, outputs_, parts);
}

void WideRows::load(cudaStream_t stream) const {
  launch_copies<Way::kWidens>(dtype_, inputs_, stream);
}

void WideRows::store(cudaStream_t stream) const {
  launch_copies<Way::kRounds>(dtype_, outputs_, stream);
}

}  // namespace attune::cuda
