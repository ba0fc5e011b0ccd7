#include <math_constants.h>

#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/walks/gate_gradients.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace gate_gradients_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kChannelThreads = 512;
// A warp a token, and few tokens a warp: each waits for its loads.
constexpr int kTokenThreads = 1024;
constexpr int kTokenWarps = kTokenThreads / kWarpSize;

/// Positions top, top - 1, ... of a sequence, in the order in which states follow each other.
struct GateChunk {
  std::int64_t sequence = 0;
  SequenceSpan span;
  std::int64_t top = 0;
  int count = 0;            // 0 for a number that no sequence uses
  bool is_at_token = true;  // the checkpoint lies behind token `top`; else at the sequence's end
};

__device__ GateChunk chunk_of_checkpoint(const SequencesView& sequences,
                                         std::int64_t sequence_count, std::int64_t index,
                                         std::int64_t interval) {
  GateChunk chunk;
  chunk.sequence = sequence_of_part(sequences, sequence_count, index, interval);
  chunk.span = span_of(sequences, chunk.sequence);
  const std::int64_t length = chunk.span.length;
  const std::int64_t own = index - first_part(sequences, chunk.sequence, chunk.span, interval);
  if (own < 0 || own > length / interval) return chunk;
  chunk.is_at_token = own > 0;
  chunk.top = own > 0 ? length - own * interval : length - 1;
  const std::int64_t bottom = max(length - (own + 1) * interval + 1, std::int64_t{0});
  chunk.count = static_cast<int>(max(chunk.top - bottom + 1, std::int64_t{0}));
  return chunk;
}

/// One token of one head.
struct TokenPlace {
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

__device__ TokenPlace place_of(const GateGradientParams& p, const GateChunk& chunk,
                               std::int64_t position, std::int64_t head) {
  const SequenceSpan& span = chunk.span;
  const std::int64_t from_begin = p.descending ? span.length - 1 - position : position;
  return {span.batch, span.begin + from_begin, head};
}

template <class T>
__device__ float log_decay(const GateView& gate, const TokenPlace& at, std::int64_t channel) {
  if (gate.rows.data == nullptr) return 0.0F;
  return gate_at<T>(gate, row_offset(gate.rows, at.batch, at.token, at.head) + channel);
}

/// Whether there is nothing before the token for its decay to act on.
__device__ bool has_no_past(const GateGradientParams& p, std::int64_t position, float log) {
  return log == -CUDART_INF_F || (position == 0 && !p.has_initial);
}

/// A row's channel times its gradient.
template <class T>
__device__ __forceinline__ float term_at(const GateGradientParams& p, const GradientTerm& term,
                                         const TokenPlace& at, std::int64_t channel) {
  if (term.rows.data == nullptr) return 0.0F;
  const std::int64_t row = (at.batch * p.sequences.tokens + at.token) * p.heads + at.head;
  const std::int64_t plane = p.batches * p.sequences.tokens * p.heads * p.columns;
  const float* const gradients = term.planes + row * p.columns + channel;
  float gradient = 0.0F;
  for (std::int64_t i = 0; i < p.plane_count; ++i) gradient += gradients[i * plane];
  const std::int64_t offset =
      row_offset(term.rows, at.batch, at.token, at.head / term.heads_per_row);
  return gradient * to_float(static_cast<const T*>(term.rows.data)[offset + channel]);
}

/// The change of Z at the i-th token of a chunk; at a checkpoint's own token, what is missing from
/// the checkpoint's product.
template <class T>
__device__ __forceinline__ float change_at(const GateGradientParams& p, const GateChunk& chunk,
                                           int i, const TokenPlace& at, std::int64_t channel) {
  const float lost = term_at<T>(p, p.lost, at, channel);
  if (i == 0 && chunk.is_at_token) return -lost;
  return term_at<T>(p, p.gained, at, channel) - lost;
}

__device__ float product_at(const GateGradientParams& p, std::int64_t index, std::int64_t head,
                            std::int64_t channel) {
  float sum = 0.0F;
  for (std::int64_t i = 0; i < p.product_planes; ++i) {
    sum += p.products[((i * p.checkpoints + index) * p.heads + head) * p.columns + channel];
  }
  return sum;
}

/// A block takes 32 channels of one chunk: a warp the changes of a token, then a lane the sums of a
/// channel from the checkpoint on.
template <class T>
__global__ __launch_bounds__(kChannelThreads) void channel_gate_gradients(
    const __grid_constant__ GateGradientParams p) {
  constexpr int kTokensAtOnce = kChannelThreads / kWarpSize;
  __shared__ float z[kMaxInterval][kWarpSize];
  __shared__ bool has_past[kMaxInterval][kWarpSize];
  const std::int64_t tiles = ceil_div(p.columns, kWarpSize);
  const std::int64_t number = block_number();
  const std::int64_t head = number / tiles % p.heads;
  const std::int64_t checkpoint = number / tiles / p.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t channel = number % tiles * kWarpSize + lane;
  if (checkpoint >= p.checkpoints) return;
  const GateChunk chunk =
      chunk_of_checkpoint(p.sequences, p.sequence_count, checkpoint, p.interval);
  const int count = channel < p.columns ? chunk.count : 0;

  const float gamma = constant_decay(p.gamma, chunk.sequence, head);
  for (int i = warp; i < count; i += kTokensAtOnce) {
    const TokenPlace at = place_of(p, chunk, chunk.top - i, head);
    const float log =
        gamma + log_decay<T>(p.shared_gate, at, 0) + log_decay<T>(p.channel_gate, at, channel);
    z[i][lane] = change_at<T>(p, chunk, i, at, channel);
    has_past[i][lane] = !has_no_past(p, chunk.top - i, log);
  }
  float sum = warp == 0 && count > 0 ? product_at(p, checkpoint, head, channel) : 0.0F;
  __syncthreads();  // all changes are there
  for (int i = 0; warp == 0 && i < count; ++i) {
    sum = has_past[i][lane] ? sum + z[i][lane] : 0.0F;
    z[i][lane] = sum;
  }
  __syncthreads();  // changes have become gradients
  for (int i = warp; i < count; i += kTokensAtOnce) {
    const TokenPlace at = place_of(p, chunk, chunk.top - i, head);
    static_cast<float*>(
        p.channels.data)[row_offset(p.channels, at.batch, at.token, at.head) + channel] =
        z[i][lane];
  }
}

/// Sums over channels, a warp a token; the last item is the checkpoint's product.
template <class T>
__device__ void sum_changes(const GateGradientParams& p, const GateChunk& chunk, std::int64_t index,
                            std::int64_t head, float* changes) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int i = warp; i <= chunk.count; i += kTokenWarps) {
    float sum = 0.0F;
    for (std::int64_t channel = lane; channel < p.columns; channel += kWarpSize) {
      sum += i == chunk.count
                 ? product_at(p, index, head, channel)
                 : change_at<T>(p, chunk, i, place_of(p, chunk, chunk.top - i, head), channel);
    }
    sum = warp_sum(sum);
    if (lane == 0) changes[i] = sum;
  }
}

/// A block a chunk of one head: gradients of what all its channels share.
template <class T>
__global__ __launch_bounds__(kTokenThreads) void shared_gate_gradients(
    const __grid_constant__ GateGradientParams p) {
  __shared__ float z[kMaxInterval + 1];
  __shared__ bool has_past[kMaxInterval];
  const std::int64_t head = block_number() % p.heads;
  const std::int64_t checkpoint = block_number() / p.heads;
  if (checkpoint >= p.checkpoints) return;
  const GateChunk chunk =
      chunk_of_checkpoint(p.sequences, p.sequence_count, checkpoint, p.interval);

  sum_changes<T>(p, chunk, checkpoint, head, z);
  const float gamma = constant_decay(p.gamma, chunk.sequence, head);
  for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kTokenThreads) {
    const TokenPlace at = place_of(p, chunk, chunk.top - i, head);
    const float log = gamma + log_decay<T>(p.shared_gate, at, 0);
    has_past[i] = !has_no_past(p, chunk.top - i, log);
  }
  __syncthreads();  // all changes are there
  if (threadIdx.x == 0) {
    float sum = z[chunk.count];
    float total = 0.0F;
    for (int i = 0; i < chunk.count; ++i) {
      sum = has_past[i] ? sum + z[i] : 0.0F;
      z[i] = sum;
      total += sum;
    }
    if (p.gamma_terms != nullptr) p.gamma_terms[checkpoint * p.heads + head] = total;
  }
  if (p.shared.data == nullptr) return;
  __syncthreads();  // changes have become gradients
  for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kTokenThreads) {
    const TokenPlace at = place_of(p, chunk, chunk.top - i, head);
    static_cast<float*>(p.shared.data)[row_offset(p.shared, at.batch, at.token, at.head)] = z[i];
  }
}

/// A block an element of the gradient.
__global__ __launch_bounds__(kThreads) void gamma_gradient(
    const __grid_constant__ GammaGradientParams p) {
  __shared__ float sums[kWarps];
  const std::int64_t head = block_number() % p.heads;
  const std::int64_t sequence = block_number() / p.heads;
  const bool shared = p.sequence_stride == 0;
  if (sequence >= (shared ? 1 : p.sequence_count)) return;

  std::int64_t first = 0;
  std::int64_t count = p.checkpoints;
  if (!shared) {
    const SequenceSpan span = span_of(p.sequences, sequence);
    first = first_part(p.sequences, sequence, span, p.interval);
    count = span.length / p.interval + 1;
  }
  float sum = 0.0F;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    sum += p.terms[(first + i) * p.heads + head];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = sum;
  __syncthreads();  // every warp's sum is there
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp];
    p.out[sequence * p.sequence_stride + head * p.head_stride] = p.sign * sum;
  }
}

}  // namespace gate_gradients_kernels

template <class T>
void launch_gate_gradients(const GateGradientParams& p, cudaStream_t stream) {
  if (p.channels.data != nullptr) {
    const std::int64_t blocks = p.checkpoints * p.heads * ceil_div(p.columns, kWarpSize);
    launch<channel_gate_gradients<T>>({.grid = grid_of(blocks), .block = kChannelThreads}, stream,
                                      p);
  }
  if (p.shared.data != nullptr || p.gamma_terms != nullptr) {
    launch<shared_gate_gradients<T>>(
        {.grid = grid_of(p.checkpoints * p.heads), .block = kTokenThreads}, stream, p);
  }
}

void launch_gamma_gradient(const GammaGradientParams& p, cudaStream_t stream) {
  const std::int64_t rows = p.sequence_stride == 0 ? 1 : p.sequence_count;
  launch<gamma_gradient>({.grid = grid_of(rows * p.heads), .block = kThreads}, stream, p);
}

template void launch_gate_gradients<float>(const GateGradientParams&, cudaStream_t);
template void launch_gate_gradients<__half>(const GateGradientParams&, cudaStream_t);
template void launch_gate_gradients<__nv_bfloat16>(const GateGradientParams&, cudaStream_t);

}  // namespace attune::cuda
