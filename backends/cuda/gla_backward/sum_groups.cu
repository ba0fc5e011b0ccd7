// Gradients of what a group of heads shares, from those of each head, in a fixed order.
#include "cuda/device/element.cuh"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/gla_backward/place.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {
namespace {

constexpr int kThreads = 256;
constexpr int kWordElements = 8;  // of 16 bytes

struct Sum {
  ConstTokenView from;  // [B, T, heads, channels]
  TokenView to;         // [B, T, heads / group, channels]
  std::int64_t tokens = 0;
  std::int64_t words = 0;  // of all that is written
  int heads = 0;           // that are written
  int group = 1;
  int row_words = 0;
};

/// A thread per 16 bytes written.
template <class T>
__global__ __launch_bounds__(kThreads) void sum_groups(const __grid_constant__ Sum p) {
  take_over_from_previous_launch();
  const std::int64_t word = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (word >= p.words) return;
  const int channel = static_cast<int>(word % p.row_words) * kWordElements;
  const std::int64_t row = word / p.row_words;
  const std::int64_t head = row % p.heads;
  const std::int64_t token = row / p.heads % p.tokens;
  const std::int64_t batch = row / p.heads / p.tokens;
  float2 sums[4] = {};
  const T* from = static_cast<const T*>(p.from.data) +
                  row_offset(p.from, batch, token, head * p.group) + channel;
  for (int i = 0; i < p.group; ++i, from += p.from.head) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    const std::uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[e].x += unpack<T>(pairs[e]).x;
      sums[e].y += unpack<T>(pairs[e]).y;
    }
  }
  *reinterpret_cast<uint4*>(static_cast<T*>(p.to.data) + row_offset(p.to, batch, token, head) +
                            channel) = {
      pack<T>(sums[0].x, sums[0].y), pack<T>(sums[1].x, sums[1].y), pack<T>(sums[2].x, sums[2].y),
      pack<T>(sums[3].x, sums[3].y)};
}

template <class T>
void launch_sum(const GlaBackwardParams& params, const TokenView& from, const TokenView& to,
                int channels, cudaStream_t stream) {
  Sum p;
  p.from = {from.data, from.batch, from.token, from.head};
  p.to = to;
  p.tokens = params.sequences.tokens;
  p.heads = static_cast<int>(params.heads) / params.group;
  p.group = params.group;
  p.row_words = channels / kWordElements;
  const std::int64_t batches = params.sequences.bounds != nullptr ? 1 : params.sequence_count;
  p.words = batches * p.tokens * p.heads * p.row_words;
  launch<sum_groups<T>>({.grid = dim3(static_cast<unsigned>((p.words + kThreads - 1) / kThreads)),
                         .block = dim3(kThreads),
                         .overlaps_previous = true},
                        stream, p);
}

}  // namespace

template <class T>
void launch_sum_groups(const GlaBackwardParams& p, cudaStream_t stream) {
  launch_sum<T>(p, p.dy, p.dy_of_groups, p.own, stream);
  launch_sum<T>(p, p.dz, p.dz_of_groups, p.other, stream);
}

template void launch_sum_groups<__nv_bfloat16>(const GlaBackwardParams&, cudaStream_t);
template void launch_sum_groups<__half>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
