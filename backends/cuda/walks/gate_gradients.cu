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
constexpr int kTokenThreads = 512;
constexpr int kTokenWarps = kTokenThreads / kWarpSize;
constexpr int kResidentBlocks = 2;  // of either on a multiprocessor: 64 registers

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
  if (own < 0 || own > quotient(length, interval)) return chunk;
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

/// Tokens of a thread whose loads are under way together.
constexpr int kTogether = 4;

/// For kTogether tokens `step` apart from the i-th of a chunk on, none of them behind the last: a
/// row's channel times its gradient.
template <class T>
__device__ __forceinline__ void add_terms(float (&sums)[kTogether], float sign,
                                          const GateGradientParams& p, const GradientTerm& term,
                                          const GateChunk& chunk, int i, int step,
                                          std::int64_t head, std::int64_t channel) {
  if (term.rows.data == nullptr) return;
  const TokenPlace top = place_of(p, chunk, chunk.top, head);
  const std::int64_t back = p.descending ? 1 : -1;  // in memory, from one of the chunk to the next
  const std::int64_t row = (top.batch * p.sequences.tokens + top.token) * p.heads + head;
  const std::int64_t plane = p.batches * p.sequences.tokens * p.heads * p.columns;
  const float* const gradients = term.planes + row * p.columns + channel;
  const T* const rows =
      static_cast<const T*>(term.rows.data) + channel +
      row_offset(term.rows, top.batch, top.token, quotient(head, term.heads_per_row));
  float gradient[kTogether] = {};
  T element[kTogether];
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    const std::int64_t token = back * min(i + n * step, chunk.count - 1);
    element[n] = rows[token * term.rows.token];
    gradient[n] = gradients[token * p.heads * p.columns];
  }
#pragma unroll 4
  for (std::int64_t at = 1; at < p.plane_count; ++at) {
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const std::int64_t token = back * min(i + n * step, chunk.count - 1);
      gradient[n] += gradients[at * plane + token * p.heads * p.columns];
    }
  }
#pragma unroll
  for (int n = 0; n < kTogether; ++n)
    sums[n] = fmaf(sign * gradient[n], to_float(element[n]), sums[n]);
}

/// The changes of Z at such tokens; at a checkpoint's own token, what is missing from the
/// checkpoint's product.
template <class T>
__device__ __forceinline__ void add_changes(float (&sums)[kTogether], const GateGradientParams& p,
                                            const GateChunk& chunk, int i, int step,
                                            std::int64_t head, std::int64_t channel) {
  float gained[kTogether] = {};
  add_terms<T>(gained, 1.0F, p, p.gained, chunk, i, step, head, channel);
  if (i == 0 && chunk.is_at_token) gained[0] = 0.0F;
  add_terms<T>(gained, -1.0F, p, p.lost, chunk, i, step, head, channel);
#pragma unroll
  for (int n = 0; n < kTogether; ++n) sums[n] += gained[n];
}

__device__ float product_at(const GateGradientParams& p, std::int64_t index, std::int64_t head,
                            std::int64_t channel) {
  float sum = 0.0F;
  for (std::int64_t i = 0; i < p.product_planes; ++i) {
    sum += p.products[((i * p.checkpoints + index) * p.heads + head) * p.columns + channel];
  }
  return sum;
}

/// A block takes 32 channels of one chunk: a warp the changes of some tokens, then a lane the sums
/// of a channel from the checkpoint on.
template <class T>
__global__ __launch_bounds__(kChannelThreads, kResidentBlocks) void channel_gate_gradients(
    const __grid_constant__ GateGradientParams p) {
  constexpr int kTokensAtOnce = kChannelThreads / kWarpSize;
  __shared__ float z[kMaxInterval][kWarpSize];
  __shared__ bool has_past[kMaxInterval][kWarpSize];
  const std::int64_t tiles = ceil_div(p.columns, kWarpSize);
  const std::int64_t number = block_number();
  const std::int64_t of_all = quotient(number, tiles);
  const std::int64_t checkpoint = quotient(of_all, p.heads);
  const std::int64_t head = of_all - checkpoint * p.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t channel = (number - of_all * tiles) * kWarpSize + lane;
  if (checkpoint >= p.checkpoints) return;
  const GateChunk chunk =
      chunk_of_checkpoint(p.sequences, p.sequence_count, checkpoint, p.interval);
  const int count = channel < p.columns ? chunk.count : 0;

  const float gamma = constant_decay(p.gamma, chunk.sequence, head);
  for (int first = warp; first < count; first += kTogether * kTokensAtOnce) {
    float changes[kTogether] = {};
    add_changes<T>(changes, p, chunk, first, kTokensAtOnce, head, channel);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int i = first + n * kTokensAtOnce;
      if (i >= count) break;
      const TokenPlace at = place_of(p, chunk, chunk.top - i, head);
      const float log =
          gamma + log_decay<T>(p.shared_gate, at, 0) + log_decay<T>(p.channel_gate, at, channel);
      z[i][lane] = changes[n];
      has_past[i][lane] = !has_no_past(p, chunk.top - i, log);
    }
  }
  float sum = warp == 0 && count > 0 ? product_at(p, checkpoint, head, channel) : 0.0F;
  __syncthreads();  // all changes are there
#pragma unroll 8
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

/// Sums over channels of a chunk's changes; the last item is the checkpoint's product. A warp takes
/// kTogether tokens and, where these are fewer than all warps have, a part of the channels.
template <class T>
__device__ void sum_changes(const GateGradientParams& p, const GateChunk& chunk, std::int64_t index,
                            std::int64_t head, float* changes) {
  __shared__ float partial[kTokenWarps * kTogether];  // [part, token], of several parts
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (warp == kTokenWarps - 1) {
    float sum = 0.0F;
    for (std::int64_t channel = lane; channel < p.columns; channel += kWarpSize) {
      sum += product_at(p, index, head, channel);
    }
    sum = warp_sum(sum);
    if (lane == 0) changes[chunk.count] = sum;
  }
  const int groups = (chunk.count + kTogether - 1) / kTogether;
  const int parts = max(kTokenWarps / max(groups, 1), 1);
  float* const to = parts > 1 ? partial : changes;
  for (int item = warp; item < groups * parts; item += kTokenWarps) {
    const int part = item / groups;
    const int first = (item - part * groups) * kTogether;
    float sums[kTogether] = {};
    for (std::int64_t channel = part * kWarpSize + lane; channel < p.columns;
         channel += parts * kWarpSize) {
      add_changes<T>(sums, p, chunk, first, 1, head, channel);
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const float sum = warp_sum(sums[n]);
      if (lane == 0 && first + n < chunk.count) to[part * chunk.count + first + n] = sum;
    }
  }
  if (parts == 1) return;
  __syncthreads();  // all parts are there
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= chunk.count) return;
  float sum = partial[i];
  for (int part = 1; part < parts; ++part) sum += partial[part * chunk.count + i];
  changes[i] = sum;
}

/// A block a chunk of one head: gradients of what all its channels share.
template <class T>
__global__ __launch_bounds__(kTokenThreads, kResidentBlocks) void shared_gate_gradients(
    const __grid_constant__ GateGradientParams p) {
  __shared__ float z[kMaxInterval + 1];
  __shared__ bool has_past[kMaxInterval];
  const std::int64_t checkpoint = quotient(block_number(), p.heads);
  const std::int64_t head = block_number() - checkpoint * p.heads;
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
