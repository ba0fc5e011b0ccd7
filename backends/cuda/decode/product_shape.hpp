// What a block of products on tensor cores takes at a time, and what its shared memory holds.
#pragma once

#include <cstdint>

#include "cuda/decode/decode_config.hpp"

namespace attune::cuda::decode {

/// What of a step its blocks' shared memory depends on.
struct ProductStep {
  std::int64_t keys = 0;  // K
  int tokens = 1;         // T
  int committed = 0;      // R
  bool has_gk = false, gk_is_f32 = false;
  bool keeps_states = false;
  int state_bytes = 4;  // of an element
};

/// A block's tile, the same for all blocks of a launch, and where its shared memory has what, in
/// bytes, the state's part in front. Committed tokens come before new ones there: new token t is at
/// place R + t, however many of the committed ones were accepted.
struct ProductShape {
  int warps_k = 1, warps_v = 1;
  int rows = 0, columns = 0;
  int tiles = 1;  // of a head's columns
  bool evict_first = false;
  int early_blocks = 0;  // of a multiprocessor, that ask for states while the launch before ends
  int keys = 0, values = 0, queries = 0;  // [places, kTokenStride] in the type of q
  int gates = 0;                          // the same, where that is gk's type
  int decays = 0;                         // [places, kRows] with gk, else [places]
  int reads = 0, writes = 0;  // [kRows / kFactorRows, kFactorStride] with gk, else [kPlaces]
  int kept = 0;               // [kRows], with gk
  int scores = 0;             // [kPlaces, kTokens], by place
  int spans = 0;              // the same, without gk: decays from place to new token
  int slots = 0;              // [kTokens], with kept states
  /// Of the first warp, [T, sum_stride()], and from warp to warp: where its part of the state was, if
  /// that is but one tile.
  int sums = 0, warp_sums = 0;
  int score_sums = 0;  // [warps_v, T, sum_stride()]
  int bytes = 0;       // of all

  /// At most: new tokens or committed ones, the depth of a product; both together; a tile's rows,
  /// and columns.
  static constexpr int kTokens = DecodeConfig::kProductTokens;
  static constexpr int kPlaces = 2 * kTokens;
  static constexpr int kRows = DecodeConfig::kProductRows;
  static_assert(DecodeConfig::kProductColumns == kRows);
  static constexpr int kMaxWarpsV = DecodeConfig::kProductColumns / DecodeConfig::kStepWarpColumns;
  /// Elements from token to token: lanes that have different tokens, or different parts of one, then
  /// fall into different banks.
  static constexpr int kTokenStride = kRows + 16;
  /// Factors of eight rows are side by side, and so many floats from the next eight.
  static constexpr int kFactorRows = 8;
  static constexpr int kFactorStride = kFactorRows * kTokens + 8;
  static constexpr int sum_stride(int warp_columns) { return warp_columns + 4; }

  static constexpr ProductShape of(const DecodeConfig& config, const ProductStep& step) {
    ProductShape shape{.warps_k = config.warps_k,
                       .warps_v = config.warps_v,
                       .rows = config.product_rows(),
                       .columns = config.tile_columns(),
                       .evict_first = config.evict_first};
    shape.bytes = shape.rows * shape.columns * step.state_bytes;
    const auto take = [&shape](int& at, int size) {
      constexpr int kAlignment = DecodeConfig::kVectorBytes;
      at = shape.bytes;
      shape.bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    };
    constexpr int kFloat = sizeof(float);
    constexpr int kToken = kTokenStride * static_cast<int>(sizeof(std::uint16_t));
    constexpr int kFactors = kRows / kFactorRows * kFactorStride * kFloat;
    const int places = step.committed + step.tokens;
    take(shape.keys, places * kToken);
    take(shape.values, places * kToken);
    take(shape.queries, step.tokens * kToken);
    take(shape.gates, step.has_gk && !step.gk_is_f32 ? places * kToken : 0);
    take(shape.decays, places * (step.has_gk ? kRows : 1) * kFloat);
    constexpr int kOfHead = (kPlaces + 1) * kFloat;
    take(shape.reads, step.has_gk ? kFactors : kOfHead);
    take(shape.writes, !step.has_gk ? kOfHead : step.keeps_states ? 0 : kFactors);
    take(shape.kept, step.has_gk && !step.keeps_states ? kRows * kFloat : 0);
    take(shape.scores, kPlaces * kTokens * kFloat);
    take(shape.spans, step.has_gk ? 0 : kPlaces * kTokens * kFloat);
    take(shape.slots, step.keeps_states ? kTokens * static_cast<int>(sizeof(void*)) : 0);
    const int sums = step.tokens * sum_stride(config.warp_columns) * kFloat;
    take(shape.score_sums, shape.warps_v * sums);
    const int warps = shape.warps_k * shape.warps_v;
    shape.warp_sums = shape.rows * shape.columns * step.state_bytes / warps;
    if (step.keys > shape.rows) {
      shape.warp_sums = sums;
      take(shape.sums, warps * sums);
    }
    return shape;
  }
};

}  // namespace attune::cuda::decode
