// f32 on the tensor cores: a value as the sum of two of bf16, and products of such sums.
//
// x = high + low + rest, |rest| <= 2^-18 |x|; of (high + low) (high' + low') the product of the two
// low parts, as small as what the rests leave out, is not made. Tensor cores cut sums off where
// fp32 rounds them: what runs on for long (the state) is summed outside of them, by a fused
// multiply-add a chunk, or the cuts would add up to more than all else.
//
// Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
// surpassing the FP32 theoretical peak performance", arXiv:2203.03341.
#pragma once

#include "cuda/chunk_mma/stages.cuh"

namespace attune::cuda::chunk_mma {

using SplitPart = __nv_bfloat16;

/// Two values: their high parts and their low parts, each packed as an operand of mma.
struct SplitPair {
  std::uint32_t high = 0;
  std::uint32_t low = 0;
};

__device__ __forceinline__ SplitPair split(float x, float y) {
  const std::uint32_t high = pack<SplitPart>(x, y);
  const float2 rounded = unpack<SplitPart>(high);
  return {high, pack<SplitPart>(x - rounded.x, y - rounded.y)};
}
__device__ __forceinline__ float2 joined(const SplitPair& pair) {
  const float2 high = unpack<SplitPart>(pair.high);
  const float2 low = unpack<SplitPart>(pair.low);
  return {high.x + low.x, high.y + low.y};
}

/// A 16 x 16 block of an operand of mma.
struct SplitBlock {
  std::uint32_t high[4];
  std::uint32_t low[4];

  __device__ void set(int at, const SplitPair& pair) {
    high[at] = pair.high;
    low[at] = pair.low;
  }
};

/// A tile as its high parts and its low parts.
template <class Shape>
struct SplitTile {
  Tile<Shape> high;
  Tile<Shape> low;

  __device__ SplitTile(std::uint32_t begin, int bytes) : high(begin), low(begin + bytes) {}

  __device__ __forceinline__ SplitBlock down(int row, int channel) const {
    SplitBlock block;
    load_matrices(block.high, high.down(row, channel));
    load_matrices(block.low, low.down(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock across(int row, int channel) const {
    SplitBlock block;
    load_matrices(block.high, high.across(row, channel));
    load_matrices(block.low, low.across(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock down_transposed(int row, int channel) const {
    SplitBlock block;
    load_matrices_transposed(block.high, high.down(row, channel));
    load_matrices_transposed(block.low, low.down(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock across_transposed(int row, int channel) const {
    SplitBlock block;
    load_matrices_transposed(block.high, high.across(row, channel));
    load_matrices_transposed(block.low, low.across(row, channel));
    return block;
  }
};

/// d += a b for a 16 x 16 and kBlocks blocks b of 16 x 16, d two blocks of 16 x 8 for each of b;
/// products that follow one another go to different sums.
template <int kBlocks>
__device__ __forceinline__ void mma_split(float (*d)[4], const SplitBlock& a,
                                          const SplitBlock (&b)[kBlocks]) {
  const auto add = [&](const std::uint32_t(&left)[4], std::uint32_t(SplitBlock::*right)[4]) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      mma_m16n8k16<SplitPart>(d[2 * n], left, (b[n].*right)[0], (b[n].*right)[1]);
      mma_m16n8k16<SplitPart>(d[2 * n + 1], left, (b[n].*right)[2], (b[n].*right)[3]);
    }
  };
  add(a.low, &SplitBlock::high);
  add(a.high, &SplitBlock::low);
  add(a.high, &SplitBlock::high);
}

// Chunks of f32 tensors on their way to such tiles: split once there, not by each warp that reads
// them. They wait in registers, so that loading them is under way for a whole chunk.

/// The tiles of one chunk, high and low parts each; q's only where outputs are made.
template <class Shape, bool kWithQueries>
struct SplitStage {
  static constexpr int kBytes =
      2 * ((kWithQueries ? 2 : 1) * Shape::kKeyTileBytes + Shape::kValueTileBytes);

  __device__ explicit SplitStage(std::uint32_t begin)
      : k(begin, Shape::kKeyTileBytes),
        v(begin + 2 * Shape::kKeyTileBytes, Shape::kValueTileBytes),
        q(begin + 2 * Shape::kKeyTileBytes + 2 * Shape::kValueTileBytes, Shape::kKeyTileBytes) {}
  SplitTile<Shape> k, v, q;
};

/// What one thread loads of a chunk of kChannels channels of one tensor: some channels of one token
/// in kRows.
template <class Shape, int kChannels>
class LoadedTile {
 public:
  /// Where that is, from the chunk's first token on, which are `step` apart.
  __device__ static std::int64_t place(std::int64_t step) { return own_row() * step + channel(); }

  /// Begins to load it from there; zeros for tokens from `rows` on and for channels from `channels`
  /// on. Rows have a multiple of kPerCopy channels, zeros behind `channels`.
  __device__ __forceinline__ void fetch(const float* from, std::int64_t step, int rows,
                                        int channels) {
    const int existing = channel() < channels ? rows - own_row() : 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      loaded_[i] = i * kRows < existing ? load_float4(from, policy_evict_normal()) : float4{};
      from += kRows * step;
    }
  }
  /// Waits for it. `memory` is where shared memory begins.
  __device__ __forceinline__ void store(const SplitTile<Shape>& to, std::byte* memory) const {
    const std::uint32_t begin = shared_address(memory);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const float4& x = loaded_[i];
      const SplitPair left = split(x.x, x.y);
      const SplitPair right = split(x.z, x.w);
      const auto place = [&](const Tile<Shape>& tile) {
        return reinterpret_cast<uint2*>(memory +
                                        (tile.at(i * kRows + own_row(), channel() * 2) - begin));
      };
      *place(to.high) = {left.high, right.high};
      *place(to.low) = {left.low, right.low};
    }
  }

 private:
  static constexpr int kPerCopy = 4;  // channels of a float4
  static constexpr int kLanes = kChannels / kPerCopy;
  static constexpr int kRows = Shape::kThreads / kLanes;  // at a time
  static constexpr int kCopies = Shape::kChunk / kRows;
  static_assert(kRows * kCopies == Shape::kChunk);

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kLanes * kPerCopy; }
  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / kLanes; }

  float4 loaded_[kCopies];
};

/// The tokens of one block in memory, and a chunk of them on its way. Strides and sizes stay with
/// the parameters: registers are for what is on its way.
template <class Shape, bool kWithQueries>
class SplitTokens {
 public:
  __device__ SplitTokens(const SplitWalkParams& p, const Walk& walk)
      : p_(p),
        k_(rows_of<const float>(p.k, walk, walk.head / p.heads_per_key, first_key(walk)).first +
           OfKeys::place(step(walk, p.k))),
        v_(rows_of<const float>(p.v, walk, walk.head / p.heads_per_value, walk.first_value).first +
           OfValues::place(step(walk, p.v))),
        q_(rows_of<const float>(p.q, walk, walk.head, first_key(walk)).first +
           OfKeys::place(step(walk, p.q))),
        o_(rows_of<float>(p.o, walk, walk.head, walk.first_value).first +
           walk.slice * p.output_plane + first_row() * step(walk, p.o) + output_channel()) {}

  __device__ __forceinline__ void fetch(const Walk& walk, int chunk) {
    if (chunk >= walk.chunks) return;
    const std::int64_t first = walk.position(chunk);
    const int rows = walk.rows(chunk);
    const int keys = p_.key_channels - first_key(walk);
    const auto fetch = [&](auto& loaded, const float* from, const ConstTokenView& view,
                           int channels) {
      const std::int64_t apart = step(walk, view);
      loaded.fetch(from + first * apart, apart, rows, channels);
    };
    fetch(loaded_k_, k_, p_.k, keys);
    fetch(loaded_v_, v_, p_.v, p_.value_channels - walk.first_value);
    if constexpr (kWithQueries) fetch(loaded_q_, q_, p_.q, keys);
  }
  /// Splits what was fetched, which is this chunk.
  __device__ __forceinline__ void store(const SplitStage<Shape, kWithQueries>& to,
                                        std::byte* memory, const Walk& walk, int chunk) const {
    if (chunk >= walk.chunks) return;
    loaded_k_.store(to.k, memory);
    loaded_v_.store(to.v, memory);
    if constexpr (kWithQueries) loaded_q_.store(to.q, memory);
  }
  /// Writes the warp's 16 channels of a chunk's outputs. Eight lanes write 32 bytes in a row.
  __device__ __forceinline__ void store_outputs(const Outputs<Shape>& outputs, const Walk& walk,
                                                int chunk) const {
    const int rows = walk.rows(chunk) - first_row();
    const int channels = p_.value_channels - walk.first_value - output_channel();
    const int existing[] = {channels > 0 ? rows : 0, channels > 8 ? rows : 0};
    const std::int64_t apart = step(walk, p_.o);
    float* to = o_ + walk.position(chunk) * apart;
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float* const at = to + row * apart;
        if (8 * n + row < existing[0]) at[0] = outputs[n][row];
        if (8 * n + row < existing[1]) at[8] = outputs[n][2 + row];
      }
      to += 8 * apart;
    }
  }

 private:
  using OfKeys = LoadedTile<Shape, Shape::kKeys>;
  using OfValues = LoadedTile<Shape, Shape::kValues>;

  __device__ static int first_key(const Walk& walk) { return walk.slice * Shape::kKeys; }
  /// Of two of every eight tokens' outputs.
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) % 4 * 2; }
  /// And eight channels further.
  __device__ static int output_channel() {
    return own_channel() + static_cast<int>(threadIdx.x) % kWarpSize / 4;
  }
  /// From a position's token to the next one's.
  template <class View>
  __device__ static std::int64_t step(const Walk& walk, const View& view) {
    return walk.reverse ? -view.token : view.token;
  }

  struct Nothing {};
  const SplitWalkParams& p_;
  const float* const k_;
  const float* const v_;
  const float* const q_;
  float* const o_;
  OfKeys loaded_k_;
  OfValues loaded_v_;
  std::conditional_t<kWithQueries, OfKeys, Nothing> loaded_q_;
};

}  // namespace attune::cuda::chunk_mma
