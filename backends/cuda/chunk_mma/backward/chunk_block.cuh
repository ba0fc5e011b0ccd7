// What the blocks of a chunk have alike: where it lies, its panels in shared memory, its states, and
// where gradients go.
#pragma once

#include "cuda/chunk_mma/backward/panels.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Two blocks of eight warps on a multiprocessor where their panels leave room for that, else one of
/// sixteen.
template <int kKeyPanels, int kValuePanels>
inline constexpr int kResidentBlocks = kKeyPanels + kValuePanels == 2 ? 2 : 1;
template <int kKeyPanels, int kValuePanels>
using WarpsOf = Warps<kResidentBlocks<kKeyPanels, kValuePanels> == 2 ? 2 : 4>;

/// The chunk of a block.
struct Chunk {
  Place place;
  std::int64_t head = 0;
  std::int64_t number = 0;    // of the chunk
  std::int64_t segment = 0;   // of its segment
  bool adds_forward = false;  // S is what tokens of the segment made of zero: its start is missing
  bool adds_back = false;     // D likewise

  /// Of 16 tokens, the last of which may have fewer: products stop behind them.
  __device__ int steps() const { return (place.rows + 15) / 16; }
};
/// Whether any of a warp's rows of a product are tokens of it.
template <class Own>
__device__ __forceinline__ bool has_rows(const Chunk& chunk) {
  return Own::row_block() < chunk.steps();
}

/// The number-th of the walked chunks of all heads.
__device__ __forceinline__ bool find_chunk(const BackwardParams& p, std::int64_t number,
                                           Chunk& chunk) {
  chunk = {};
  const std::int64_t of_head = quotient(number, p.heads);
  chunk.head = number - of_head * p.heads;
  chunk.number = p.chunks;
  if (of_head >= p.walked_chunks()) return false;
  const std::int64_t listed = p.walked.numbers == nullptr ? of_head : p.walked.numbers[of_head];
  if (listed < 0) return false;
  chunk.number = listed;
  if (!find_place(p, chunk.number, kTokens, chunk.place) || chunk.place.rows == 0) return false;
  if (!p.is_cut) return true;
  const std::int64_t length = chunk.place.span.length;
  chunk.segment = chunk.place.part(p, p.segment_tokens);
  chunk.adds_forward = chunk.place.first >= p.segment_tokens;
  chunk.adds_back =
      quotient(chunk.place.first, p.segment_tokens) != quotient(length - 1, p.segment_tokens);
  return true;
}

/// The chunk of a block that makes its gradients; both arguments are in shared memory. Returns whether
/// there is one.
__device__ __forceinline__ bool take_chunk(const BackwardParams& p, Chunk& chunk, bool& has_work) {
  if (threadIdx.x == 0) {
    has_work = find_chunk(p, block_number(), chunk);
    if (!has_work && p.gamma_terms != nullptr && chunk.number < p.chunks) {
      p.gamma_terms[chunk.number * p.heads + chunk.head] = 0.0F;
    }
  }
  __syncthreads();  // the block's work is known
  return has_work;
}

/// Panels of shared memory: q, k, v and do, then S and D, in whose place P and R come.
template <int kKeyPanels, int kValuePanels>
struct Panels {
  std::byte* memory;

  __device__ Panel q(int i) const { return panel_at(memory, i); }
  __device__ Panel k(int i) const { return panel_at(memory, kKeyPanels + i); }
  __device__ Panel v(int i) const { return panel_at(memory, 2 * kKeyPanels + i); }
  __device__ Panel d_o(int i) const { return panel_at(memory, 2 * kKeyPanels + kValuePanels + i); }
  __device__ Panel forward_state() const { return panel_at(memory, kTokenPanels); }
  __device__ Panel back_state() const { return panel_at(memory, kTokenPanels + 1); }
  __device__ Panel key_scores() const { return forward_state(); }
  __device__ Panel value_scores() const { return back_state(); }
  /// What lies behind them.
  __device__ std::byte* end() const { return memory + kPanels * kPanelBytes; }

  static constexpr int kTokenPanels = 2 * (kKeyPanels + kValuePanels);
  static constexpr int kPanels = kTokenPanels + 2;
};

/// Begins to load a panel of a chunk's tokens.
template <bool kQuads, class Own>
__device__ __forceinline__ void fetch_tokens(LoadedPanel<Own>& loaded, const BackwardParams& p,
                                             const TokenRows& rows, const Chunk& chunk, int panel) {
  const int channel = panel * kPanelChannels;
  loaded.template fetch<kQuads>({p, rows, chunk.place, chunk.head, channel}, chunk.place.rows,
                                rows.channels - channel);
}

/// All of the chunk's tokens on their way to their panels.
template <class Own, int kKeyPanels, int kValuePanels, bool kQuads>
class LoadedTokens {
 public:
  __device__ __forceinline__ void fetch_keys(const BackwardParams& p, const Chunk& chunk) {
#pragma unroll
    for (int panel = 0; panel < kKeyPanels; ++panel) {
      fetch_tokens<kQuads>(q_[panel], p, p.keys.reads, chunk, panel);
      fetch_tokens<kQuads>(k_[panel], p, p.keys.writes, chunk, panel);
    }
  }
  __device__ __forceinline__ void fetch_values(const BackwardParams& p, const Chunk& chunk) {
#pragma unroll
    for (int panel = 0; panel < kValuePanels; ++panel) {
      fetch_tokens<kQuads>(v_[panel], p, p.values.writes, chunk, panel);
      fetch_tokens<kQuads>(d_o_[panel], p, p.values.reads, chunk, panel);
    }
  }
  /// Wait for them. change(reads, writes, panel) is called with what was loaded.
  template <class Change>
  __device__ __forceinline__ void store_keys(const Panels<kKeyPanels, kValuePanels>& panels,
                                             Change&& change) {
#pragma unroll
    for (int panel = 0; panel < kKeyPanels; ++panel) {
      change(q_[panel], k_[panel], panel);
      q_[panel].store(panels.q(panel), panels.memory);
      k_[panel].store(panels.k(panel), panels.memory);
    }
  }
  __device__ __forceinline__ void store_values(
      const Panels<kKeyPanels, kValuePanels>& panels) const {
#pragma unroll
    for (int panel = 0; panel < kValuePanels; ++panel) {
      v_[panel].store(panels.v(panel), panels.memory);
      d_o_[panel].store(panels.d_o(panel), panels.memory);
    }
  }

 private:
  LoadedPanel<Own> q_[kKeyPanels], k_[kKeyPanels], v_[kValuePanels], d_o_[kValuePanels];
};

/// Begins to load a panel of one of the chunk's states.
template <bool kValueGates, class Own>
__device__ __forceinline__ void fetch_state(LoadedPanel<Own>& loaded, const BackwardParams& p,
                                            const Chunk& chunk, const StateSide& side, bool adds,
                                            int key_panel, int value_panel) {
  const int first_key = key_panel * kPanelChannels;
  const int first_value = value_panel * kPanelChannels;
  const std::int64_t columns = state_columns(p.values.channels);
  const std::int64_t size = p.keys.channels * columns;
  const std::int64_t first = first_key * columns + first_value;
  const int rows = p.keys.channels - first_key;
  const int channels = p.values.channels - first_value;
  const std::int64_t at = chunk.number * p.heads + chunk.head;
  loaded.template fetch<true>({side.states + at * size + first, columns}, rows, channels);
  if (!adds) return;
  const std::int64_t segment = chunk.segment * p.heads + chunk.head;
  LoadedPanel<Own> start;
  start.template fetch<true>({side.segment_states + segment * size + first, columns}, rows,
                             channels);
  if constexpr (kValueGates) {
    const float* const decays = side.values.of_chunks + at * side.values.width;
    const int last = p.values.channels - 1;
    const int own = first_value + LoadedPanel<Own>::channel();
    const float4 factors{decays[min(own, last)], decays[min(own + 1, last)],
                         decays[min(own + 2, last)], decays[min(own + 3, last)]};
    start.multiply([&](int) { return factors; });
  }
  const float* const decays = side.keys.of_chunks + at * side.keys.width;
  loaded.add(start, [&](int row) {
    const std::int64_t key = first_key + row;
    return decays[min(key, side.keys.width - 1)];
  });
}

/// Both states of a chunk, a panel of each at a time.
template <class Own, bool kValueGates>
struct LoadedStates {
  LoadedPanel<Own> forward;
  LoadedPanel<Own> back;

  __device__ __forceinline__ void fetch(const BackwardParams& p, const Chunk& chunk, int key,
                                        int value) {
    fetch_state<kValueGates>(forward, p, chunk, p.forward, chunk.adds_forward, key, value);
    fetch_state<kValueGates>(back, p, chunk, p.back, chunk.adds_back, key, value);
  }
};

/// What the gradients of a chunk's tokens are summed up in.
template <class Own, int kKeyPanels, int kValuePanels>
struct Gradients {
  Product<Own> dq[kKeyPanels];
  Product<Own> dk[kKeyPanels];
  Product<Own> dv[kValuePanels];

  __device__ Gradients() {
    for (auto& sums : dq) clear(sums);
    for (auto& sums : dk) clear(sums);
    for (auto& sums : dv) clear(sums);
  }

  /// Their first terms: what tokens read of the chunk's states. store(states, key) stores a panel of
  /// both.
  template <class Store>
  __device__ __forceinline__ void read_states(LoadedStates<Own, false>& states,
                                              const Panels<kKeyPanels, kValuePanels>& panels,
                                              const BackwardParams& p, const Chunk& chunk,
                                              Store&& store) {
    const bool takes_part = has_rows<Own>(chunk);
#pragma unroll
    for (int key = 0; key < kKeyPanels; ++key) {
#pragma unroll
      for (int value = 0; value < kValuePanels; ++value) {
        store(states, key);
        __syncthreads();  // S and D are there
        if (value + 1 < kValuePanels) {
          states.fetch(p, chunk, key, value + 1);
        } else if (key + 1 < kKeyPanels) {
          states.fetch(p, chunk, key + 1, 0);
        }
        if (takes_part) {
          multiply_rows<Own>(dq[key], panels.d_o(value), panels.forward_state());
          multiply_rows<Own>(dk[key], panels.v(value), panels.back_state());
          multiply_columns<Own>(dv[value], panels.k(key), panels.back_state(), 0, kSteps);
        }
        __syncthreads();  // S and D are done with
      }
    }
  }
};

/// Writes what a run has of a gradient. No one else adds to it meanwhile, but to load it first would
/// be to wait for what was written before.
__device__ __forceinline__ void store_share(float* to, float share, bool adds) {
  if (adds) {
    atomicAdd(to, share);
  } else {
    *to = share;
  }
}

/// Writes a panel of gradients.
template <class Own>
__device__ __forceinline__ void store_gradients(const Product<Own>& sums, const BackwardParams& p,
                                                const Chunk& chunk, const TokenView& to, int panel,
                                                int channels, bool adds) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = Own::row(2 * half);
    if (row >= chunk.place.rows) continue;
    float* const first =
        static_cast<float*>(to.data) +
        row_offset(to, chunk.place.span.batch, chunk.place.token(p, row), chunk.head);
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
      const int channel = panel * kPanelChannels + Own::column(n, 0);
      const float* const pair = &sums[n][2 * half];
      if (p.stores_pairs && !adds) {
        if (channel < channels) {
          *reinterpret_cast<float2*>(first + channel) = {pair[0], pair[1]};
        }
      } else {
        if (channel < channels) store_share(first + channel, pair[0], adds);
        if (channel + 1 < channels) store_share(first + channel + 1, pair[1], adds);
      }
    }
  }
}

}  // namespace attune::cuda::chunk_mma::backward
