// Copies to slices, and sums over them.
#include <algorithm>

#include "cuda/chunk_mma/backward/sliced_heads.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda::chunk_mma::backward {
inline namespace sliced_heads_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 14;

/// A head of one slice of keys by one of values.
struct SlicedHead {
  int head, key_slice, value_slice;

  __device__ SlicedHead(const HeadSlices& all, int number) {
    head = number / all.slices();
    const int slice = number - head * all.slices();
    key_slice = slice / all.value_slices;
    value_slice = slice - key_slice * all.value_slices;
  }
  __device__ static int number(const HeadSlices& all, int head, int key_slice, int value_slice) {
    return (head * all.key_slices + key_slice) * all.value_slices + value_slice;
  }
  __device__ int first(SlicedChannels of) const {
    return of == SlicedChannels::kKeys     ? key_slice * kSliceChannels
           : of == SlicedChannels::kValues ? value_slice * kSliceChannels
                                           : 0;
  }
};

/// Calls f(i) for those of `count` that the thread takes.
template <class F>
__device__ __forceinline__ void for_each_of(std::int64_t count, F&& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride)
    f(i);
}

/// A batch, a token, a head and a channel of the i-th element of [B, T, heads, width].
struct RowElement {
  std::int64_t batch, token;
  int head, channel;

  __device__ RowElement(const HeadSlices& all, std::int64_t i, int heads, int width) {
    const std::int64_t row = quotient(i, width);
    channel = static_cast<int>(i - row * width);
    const std::int64_t of_tokens = quotient(row, heads);
    head = static_cast<int>(row - of_tokens * heads);
    batch = quotient(of_tokens, all.tokens);
    token = of_tokens - batch * all.tokens;
  }
  __device__ float* in(const SlicedTensor& tensor, int at_head, int at_channel) const {
    return tensor.rows + batch * tensor.strides[0] + token * tensor.strides[1] +
           at_head * tensor.strides[2] + at_channel;
  }
};

/// Four channels of a row of slices, which a warp has one of.
__device__ __forceinline__ float4 quad_of(const HeadSlices& all, const SlicedTensor& tensor,
                                          std::int64_t row, int first) {
  const RowElement at(all, row, all.sliced_heads(), 1);
  const SlicedHead of(all, at.head);
  const int channel = of.first(tensor.sliced) + first;
  const float* const from = at.in(tensor, of.head / tensor.group, 0);
  float quad[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) quad[n] = from[min(channel + n, tensor.channels - 1)];
#pragma unroll
  for (int n = 0; n < 4; ++n) quad[n] = channel + n < tensor.channels ? quad[n] : 0.0F;
  return {quad[0], quad[1], quad[2], quad[3]};
}

/// grid: quads of slices x tensors.
__global__ __launch_bounds__(kThreads) void slice_tensors(
    const __grid_constant__ HeadSlices all, const __grid_constant__ SlicedTensors tensors) {
  constexpr int kQuads = kSliceChannels / 4;
  const SlicedTensor& tensor = tensors.of[blockIdx.y];
  const std::int64_t rows = all.batches * all.tokens * all.sliced_heads();
  if (tensor.width() == 1) {
    for_each_of(rows, [&](std::int64_t row) {
      const RowElement at(all, row, all.sliced_heads(), 1);
      tensor.slices[row] = *at.in(tensor, SlicedHead(all, at.head).head, 0);
    });
    return;
  }
  auto* const quads = reinterpret_cast<float4*>(tensor.slices);
  for_each_of(rows * kQuads, [&](std::int64_t i) {
    quads[i] = quad_of(all, tensor, i / kQuads, static_cast<int>(i % kQuads) * 4);
  });
}

/// grid: elements of gradients x tensors.
__global__ __launch_bounds__(kThreads) void add_slices(
    const __grid_constant__ HeadSlices all, const __grid_constant__ SlicedTensors tensors) {
  const SlicedTensor& tensor = tensors.of[blockIdx.y];
  const int heads = all.heads / tensor.group;
  const int width = tensor.width();
  const bool of_keys = tensor.sliced == SlicedChannels::kKeys;
  const bool of_values = tensor.sliced == SlicedChannels::kValues;
  for_each_of(all.batches * all.tokens * heads * tensor.channels, [&](std::int64_t i) {
    const RowElement at(all, i, heads, tensor.channels);
    const int own = at.channel / width;  // the channel's slice
    const std::int64_t row = (at.batch * all.tokens + at.token) * all.sliced_heads();
    float sum = 0.0F;
    for (int head = at.head * tensor.group; head < (at.head + 1) * tensor.group; ++head) {
      for (int key = of_keys ? own : 0; key < (of_keys ? own + 1 : all.key_slices); ++key) {
        for (int value = of_values ? own : 0; value < (of_values ? own + 1 : all.value_slices);
             ++value) {
          const int number = SlicedHead::number(all, head, key, value);
          sum += tensor.slices[(row + number) * width + at.channel - own * width];
        }
      }
    }
    *at.in(tensor, at.head, at.channel) = sum;
  });
}

/// Of the i-th element of sliced states.
struct StateElement {
  std::int64_t offset;  // in the state
  bool exists;

  __device__ StateElement(const HeadSlices& all, const SlicedState& state, std::int64_t i) {
    constexpr int kSize = kSliceChannels * kSliceChannels;
    const std::int64_t of_heads = quotient(i, kSize);
    const auto within = static_cast<int>(i - of_heads * kSize);
    const std::int64_t sequence = quotient(of_heads, all.sliced_heads());
    const SlicedHead of(all, static_cast<int>(of_heads - sequence * all.sliced_heads()));
    const int key = of.first(SlicedChannels::kKeys) + within / kSliceChannels;
    const int value = of.first(SlicedChannels::kValues) + within % kSliceChannels;
    exists = key < all.keys && value < all.values;
    offset = sequence * state.strides[0] + of.head * state.strides[1] + key * state.strides[2] +
             value * state.strides[3];
  }
};

/// To the slices, or back.
template <bool kBack>
__global__ __launch_bounds__(kThreads) void move_state(const __grid_constant__ HeadSlices all,
                                                       const __grid_constant__ SlicedState state) {
  constexpr int kSize = kSliceChannels * kSliceChannels;
  for_each_of(all.sequences * all.sliced_heads() * kSize, [&](std::int64_t i) {
    const StateElement at(all, state, i);
    if constexpr (kBack) {
      if (at.exists) state.state[at.offset] = state.slices[i];
    } else {
      state.slices[i] = at.exists ? state.state[at.offset] : 0.0F;
    }
  });
}

__global__ __launch_bounds__(kThreads) void slice_gammas(
    const __grid_constant__ HeadSlices all, const __grid_constant__ ConstantDecayView gamma,
    float* values) {
  for_each_of(all.sequences * all.sliced_heads(), [&](std::int64_t i) {
    const std::int64_t sequence = quotient(i, all.sliced_heads());
    const SlicedHead of(all, static_cast<int>(i - sequence * all.sliced_heads()));
    values[i] = constant_decay(gamma, sequence, of.head);
  });
}

__global__ __launch_bounds__(kThreads) void add_gammas(const __grid_constant__ HeadSlices all,
                                                       const float* terms, std::int64_t rows,
                                                       StateView to, float sign) {
  for_each_of(rows * all.heads, [&](std::int64_t i) {
    const std::int64_t row = quotient(i, all.heads);
    const std::int64_t head = i - row * all.heads;
    float sum = 0.0F;
    for (int slice = 0; slice < all.slices(); ++slice) sum += terms[i * all.slices() + slice];
    to.data[row * to.sequence + head * to.head] = sign * sum;
  });
}

unsigned blocks_for(std::int64_t elements) {
  return static_cast<unsigned>(std::min(ceil_div(elements, kThreads), kMostBlocks));
}
}  // namespace sliced_heads_kernels

void SlicedHeads::load(cudaStream_t stream) const {
  const std::int64_t quads =
      slices_.batches * slices_.tokens * slices_.sliced_heads() * kSliceChannels / 4;
  launch<slice_tensors>({.grid = dim3(blocks_for(quads), static_cast<unsigned>(inputs_.count)),
                         .block = dim3(kThreads)},
                        stream, slices_, inputs_);
  const std::int64_t of_state =
      slices_.sequences * slices_.sliced_heads() * kSliceChannels * kSliceChannels;
  for (const SlicedState& state : starts_) {
    if (state.state == nullptr) continue;
    launch<move_state<false>>({.grid = dim3(blocks_for(of_state)), .block = dim3(kThreads)}, stream,
                              slices_, state);
  }
  if (gamma_values_ == nullptr) return;
  launch<slice_gammas>({.grid = dim3(blocks_for(slices_.sequences * slices_.sliced_heads())),
                        .block = dim3(kThreads)},
                       stream, slices_, gamma_, gamma_values_);
}

void SlicedHeads::store(cudaStream_t stream) const {
  const std::int64_t elements =
      slices_.batches * slices_.tokens * slices_.heads * std::max(slices_.keys, slices_.values);
  launch<add_slices>({.grid = dim3(blocks_for(elements), static_cast<unsigned>(outputs_.count)),
                      .block = dim3(kThreads)},
                     stream, slices_, outputs_);
  if (end_.state != nullptr) {
    const std::int64_t of_state =
        slices_.sequences * slices_.sliced_heads() * kSliceChannels * kSliceChannels;
    launch<move_state<true>>({.grid = dim3(blocks_for(of_state)), .block = dim3(kThreads)}, stream,
                             slices_, end_);
  }
  if (dgamma_terms_ == nullptr) return;
  launch<add_gammas>(
      {.grid = dim3(blocks_for(dgamma_rows_ * slices_.heads)), .block = dim3(kThreads)}, stream,
      slices_, dgamma_terms_, dgamma_rows_, dgamma_, dgamma_sign_);
}

}  // namespace attune::cuda::chunk_mma::backward
