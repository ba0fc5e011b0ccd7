// What the walks of states take for q and k where key channels have gates: in each chunk
//
//   q_i exp(G_i)    k_j exp(G_last - G_j)
//
// with G the sum of a channel's log decays, g's and gamma's included, from the chunk's start; and
// the decays exp(G_last) of the chunks. No exponent is positive where decays are decays, whatever
// their strength.
#include "cuda/chunk_mma/backward/channel_scan.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace walk_operands_kernels {  // nvcc names an anonymous one anew in every build

template <int kKeyPanels>
using OwnOf = Warps<2 * kKeyPanels>;

/// One channel of a chunk's tokens, which a thread has some of.
template <class Threads>
class ChannelRows {
 public:
  /// Begins to load them.
  __device__ ChannelRows(const BackwardParams& p, const TokenRows& rows, const Chunk& chunk) {
    const PlacedRows from(p, rows, chunk.place, chunk.head,
                          min(Threads::channel(), p.key_channels - 1));
#pragma unroll
    for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
      loaded_[i] = __ldg(from.first + min(Threads::token(i), chunk.place.rows - 1) * from.step);
    }
  }
  __device__ float operator[](int i) const { return loaded_[i]; }

 private:
  float loaded_[Threads::kTokensOfGroup];
};

/// Where the thread's tokens of what is made go.
template <class Threads>
struct MadeRows {
  float* first;
  std::int64_t step;
  int exist;

  __device__ MadeRows(const BackwardParams& p, const TokenRows& rows, const Chunk& chunk)
      : exist(Threads::channel() < state_columns(p.key_channels) ? chunk.place.rows : 0) {
    const PlacedRows to(p, rows, chunk.place, chunk.head, Threads::channel());
    first = const_cast<float*>(to.first);
    step = to.step;
  }
  __device__ void store(int i, float x) const {
    if (Threads::token(i) < exist) first[Threads::token(i) * step] = x;
  }
};

/// grid: heads x chunks.
template <int kKeyPanels>
__global__ __launch_bounds__(OwnOf<kKeyPanels>::kThreads) void make_walk_operands(
    const __grid_constant__ BackwardParams p) {
  using Own = OwnOf<kKeyPanels>;
  using Threads = ChannelThreads<Own, kKeyPanels>;
  __shared__ Log2Sum sums[Own::kThreads];
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  if (threadIdx.x == 0) {
    chunk = {};
    has_work = find_chunk(p, chunk);
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  ChannelGates<Own, kKeyPanels> gates(p, chunk);
  const ChannelRows<Threads> q(p, p.q, chunk);
  const ChannelRows<Threads> k(p, p.k, chunk);
  sums[threadIdx.x] = gates.sum();
  __syncthreads();  // the sums of all groups are there

  Log2Sum before;  // the group
  Log2Sum behind;
#pragma unroll
  for (int group = 0; group < Threads::kGroups; ++group) {
    const Log2Sum& other = sums[group * Threads::kChannels + Threads::channel()];
    if (group < Threads::group()) before.add(other, 1.0F);
    if (group > Threads::group()) behind.add(other, 1.0F);
  }
  const bool exists = Threads::channel() < p.key_channels;
  const MadeRows<Threads> made_q(p, p.walked_q, chunk);
  const MadeRows<Threads> made_k(p, p.walked_k, chunk);
#pragma unroll
  for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
    before.add(gates.log(i));
    made_q.store(i, exists ? q[i] * before.exp2_of_any() : 0.0F);
  }
#pragma unroll
  for (int i = Threads::kTokensOfGroup - 1; i >= 0; --i) {
    made_k.store(i, exists ? k[i] * behind.exp2_of_any() : 0.0F);
    behind.add(gates.log(i));
  }
  if (Threads::group() == 0 && exists) {
    const DecayFactor total = decay_factor(behind.value() / kLog2E);
    p.chunk_totals[(chunk.number * p.heads + chunk.head) * p.key_channels + Threads::channel()] = {
        total.high, total.low};
  }
}

}  // namespace walk_operands_kernels

void launch_walk_operands(const BackwardParams& p, cudaStream_t stream) {
  with_value<1, 2>(panels_of(p.key_channels), [&]<int kKeyPanels>() {
    launch<make_walk_operands<kKeyPanels>>(
        {.grid = grid_of(p.heads * p.chunks), .block = OwnOf<kKeyPanels>::kThreads}, stream, p);
  });
}

}  // namespace attune::cuda::chunk_mma::backward
