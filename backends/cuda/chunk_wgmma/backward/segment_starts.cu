// What is made of the sums of segments (segment_states.cuh), element by element: what each segment
// starts from, where there are many, and summaries of the gradients of whole sequences.
#include "cuda/chunk_wgmma/backward/gates.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma::backward {
inline namespace segment_starts_kernels {  // nvcc names an anonymous one anew in every build

inline constexpr int kStartsAtOnce = 8;  // loads under way

/// What a thread has of a state: a word of four elements, as one of those that left the sums had it
/// in its registers. Blocks (group of rows and word, sequence, head and tile of channels).
template <int kRows, int kColumns>
struct StateWord {
  static constexpr unsigned kGroups = kRows / kPanelChannels;
  static constexpr unsigned kWords = kColumns / 8;
  static constexpr unsigned kBlocks = kGroups * kWords;  // of a state
  int group;
  int word;
  std::int64_t owner;  // of all sequences, heads and tiles
  FragmentLane at;

  __device__ explicit StateWord(unsigned block)
      : group(static_cast<int>(block % kBlocks / kWords)),
        word(static_cast<int>(block % kWords)),
        owner(block / kBlocks) {}

  /// Calls visit(e, offset) for the elements that exist in a matrix.
  template <class Element, class Visit>
  __device__ __forceinline__ void for_each(const StateMatrix<Element>& matrix,
                                           Visit&& visit) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = group * kPanelChannels + at.row() + e / 2 * 8;
      const int column = word * 8 + at.column() + e % 2;
      if (matrix.data != nullptr && row < matrix.rows && column < matrix.columns) {
        visit(e, row * matrix.row + column * matrix.column);
      }
    }
  }
};

/// x taken through a segment.
__device__ __forceinline__ void pass(float (&x)[4], float decay, const float4& added) {
  x[0] = fmaf(decay, x[0], added.x);
  x[1] = fmaf(decay, x[1], added.y);
  x[2] = fmaf(decay, x[2], added.z);
  x[3] = fmaf(decay, x[3], added.w);
}

/// Makes the starts of a sequence's segments of what they add, in its place.
template <int kRows, int kColumns>
__device__ __forceinline__ void make_starts(const BackwardParams& p, Direction direction,
                                            const StateWord<kRows, kColumns>& own) {
  const bool with_time = direction == Direction::kWithTime;
  const auto [first, segments] = SegmentsOfState(p, own.owner);
  if (segments <= 1) return;
  const ChunkWalk walk = walk_of(p, direction, first);
  const StateMatrix<const float> matrix =
      with_time ? keys_by_values<const float>(p.initial_state, p, walk)
                : values_by_keys<const float>(p.dfinal_state, p, walk);
  float x[4] = {};
  own.for_each(matrix, [&](int e, std::int64_t offset) { x[e] = matrix.data[offset]; });
  const std::int64_t step = with_time ? p.between_segments() : -p.between_segments();
  const std::int64_t begin = with_time ? first : first - step * (segments - 1);
  const auto place = [&](int i) {
    return segment_words<kRows, kColumns>(p, direction, begin + step * i, own.group) +
           own.word * kWarpgroupSize;
  };
  const float* const decays = p.segment_decays + static_cast<int>(direction) * p.walks + begin;
  for (int i = 0; i < segments; i += kStartsAtOnce) {
    float4 added[kStartsAtOnce];
    float decay[kStartsAtOnce];
#pragma unroll
    for (int n = 0; n < kStartsAtOnce; ++n) {  // the last segment adds to none
      if (i + n >= segments - 1) continue;
      added[n] = *place(i + n);
      decay[n] = decays[step * (i + n)];
    }
#pragma unroll
    for (int n = 0; n < kStartsAtOnce; ++n) {
      if (i + n >= segments) continue;
      *place(i + n) = {x[0], x[1], x[2], x[3]};
      pass(x, decay[n], added[n]);
    }
  }
}

/// Words of a state that a block takes one after the other. Of packed sequences most have one segment,
/// with nothing to do.
__host__ __device__ constexpr unsigned words_of_block(const BackwardParams& p) {
  return p.by_parts() ? 4 : 1;
}

/// Blocks of StateWord, by direction.
template <class Tile>
__global__ __launch_bounds__(kWarpgroupSize) void segment_starts(
    const __grid_constant__ BackwardParams p) {
  take_over_from_previous_launch();
  const auto direction = static_cast<Direction>(blockIdx.y);
  const unsigned words = words_of_block(p);
  for (unsigned i = 0; i < words; ++i) {
    const unsigned word = blockIdx.x * words + i;
    if (Tile::kKeys == Tile::kValues || direction == Direction::kWithTime) {
      make_starts(p, direction, StateWord<Tile::kKeys, Tile::kValues>(word));
    } else {
      make_starts(p, direction, StateWord<Tile::kValues, Tile::kKeys>(word));
    }
  }
}

/// The summary of a sequence's gradient, against time. Blocks of StateWord.
template <class Tile>
__global__ __launch_bounds__(kWarpgroupSize) void join_segments(
    const __grid_constant__ BackwardParams p, const __grid_constant__ SummaryViews to) {
  constexpr auto kDirection = Direction::kAgainstTime;
  constexpr int kUnroll = 4;  // loads in flight
  const StateWord<Tile::kValues, Tile::kKeys> own(blockIdx.x);
  const std::int64_t first = SegmentsOfState(p, own.owner).first;
  const std::int64_t step = p.between_segments();
  ChunkWalk walk = walk_of(p, kDirection, first);
  const StateView final = state_of(to.final_state, walk.sequence);
  if (final.data == nullptr) return;
  const ConstStateView initial = state_of(to.initial, walk.sequence);
  const StateView sums = state_of(to.key_sums, walk.sequence);

  const float* const decays = p.segment_decays + static_cast<int>(kDirection) * p.walks + first;
  float x[4] = {};
  float total = 1.0F;
  float log = 0.0F;
#pragma unroll kUnroll
  for (int i = p.segments - 1; i >= 0; --i) {
    const float decay = decays[step * i];
    pass(x, decay,
         segment_words<Tile::kValues, Tile::kKeys>(p, kDirection, first + step * i,
                                                   own.group)[own.word * kWarpgroupSize]);
    total *= decay;
    log += logf(decay);
  }

  walk.sequence = 0;  // the views are of its own
  const auto start = values_by_keys<const float>(initial, p, walk);
  const auto end = values_by_keys<float>(final, p, walk);
  own.for_each(start,
               [&](int e, std::int64_t offset) { x[e] = fmaf(total, start.data[offset], x[e]); });
  own.for_each(end, [&](int e, std::int64_t offset) { end.data[offset] = x[e]; });
  const auto lane = static_cast<int>(threadIdx.x);
  const int key = walk.key_channel + own.word * 8 + lane;
  if (own.group > 0 || walk.value_channel > 0 || lane >= 8 || key >= p.key_dim) return;
  sums.data[walk.head * sums.head + key * sums.k] = log;
}

/// Of one direction.
template <class Tile>
unsigned word_blocks(const BackwardParams& params) {
  using Word = StateWord<Tile::kKeys, Tile::kValues>;
  return static_cast<unsigned>(params.states) * Word::kBlocks;
}

}  // namespace segment_starts_kernels

void launch_segment_starts(const BackwardParams& params, const BackwardShape& shape,
                           cudaStream_t stream) {
  if (!params.makes_starts()) return;
  constexpr unsigned kDirections = 2;
  with_tile(shape, [&]<class Tile>() {
    const unsigned blocks = word_blocks<Tile>(params) / words_of_block(params);
    launch<segment_starts<Tile>>({.grid = dim3(blocks, kDirections),
                                  .block = dim3(kWarpgroupSize),
                                  .overlaps_previous = true},
                                 stream, params);
  });
}

void launch_segment_join(const BackwardParams& params, const BackwardShape& shape,
                         const SummaryViews& to, cudaStream_t stream) {
  with_tile(shape, [&]<class Tile>() {
    launch<join_segments<Tile>>(
        {.grid = dim3(word_blocks<Tile>(params)), .block = dim3(kWarpgroupSize)}, stream, params,
        to);
  });
}

}  // namespace attune::cuda::chunk_wgmma::backward
