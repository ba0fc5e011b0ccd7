#include <array>

#include "cuda/chunks/rows_behind.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace rows_behind_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;
constexpr unsigned kBlocks = 132;  // a tensor: rows behind sequences are few

/// [1, T, heads, D] of elements of `width` bytes.
struct Rows {
  std::byte* data = nullptr;
  std::int64_t token = 0;  // strides in bytes
  std::int64_t head = 0;
  std::int64_t heads = 0;
  std::int64_t bytes = 0;  // of a row
};
struct Params {
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::array<Rows, 6> rows;
};

/// grid: blocks x tensors.
__global__ __launch_bounds__(kThreads) void clear_rows(const __grid_constant__ Params p) {
  using Word = std::uint16_t;  // the width of the narrowest elements
  const Rows& rows = p.rows[blockIdx.y];
  const std::int64_t end = p.sequences.tokens * rows.heads;
  // Known before what goes ahead is done: launches of the same call have waited for it.
  std::int64_t row = bound_of(p.sequences, p.sequence_count) * rows.heads + blockIdx.x;
  take_over_from_previous_launch();
  for (; row < end; row += gridDim.x) {
    auto* const to = reinterpret_cast<Word*>(rows.data + row / rows.heads * rows.token +
                                             row % rows.heads * rows.head);
    for (std::int64_t i = threadIdx.x; i < rows.bytes / static_cast<std::int64_t>(sizeof(Word));
         i += kThreads) {
      to[i] = 0;
    }
  }
}

}  // namespace rows_behind_kernels

void clear_gradients_behind(const ops::RecurrentAttentionProblem& problem,
                            const ops::RecurrentAttentionBackwardArgs& args, cudaStream_t stream) {
  Params params;
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.sequence_count = problem.N;
  unsigned count = 0;
  const auto add = [&](const TensorView& gradient) {
    const auto width = static_cast<std::int64_t>(size_of(gradient.dtype));
    const std::int64_t channels = gradient.rank() > 3 ? gradient.size(3) : 1;
    params.rows[count++] = {.data = static_cast<std::byte*>(gradient.data),
                            .token = gradient.stride(1) * width,
                            .head = gradient.stride(2) * width,
                            .heads = gradient.size(2),
                            .bytes = channels * width};
  };
  add(args.dq);
  add(args.dk);
  add(args.dv);
  for (const auto& gradient : {args.dg, args.dgk, args.dgv}) {
    if (gradient) add(*gradient);
  }
  launch<clear_rows>({.grid = dim3(kBlocks, count), .block = kThreads, .overlaps_previous = true},
                     stream, params);
}

}  // namespace attune::cuda
