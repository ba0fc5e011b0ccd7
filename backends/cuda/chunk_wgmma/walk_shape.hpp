// Sizes of a block of the chunked walk, from its config.
#pragma once

#include "cuda/chunk_wgmma/walk.hpp"

namespace attune::cuda {

inline constexpr std::int64_t kTileBoxBytes = 64 * 128;  // 64 rows of 64 elements
/// Registers of a thread in each role of a block.
struct RoleRegisters {
  int producer;
  int weights;
  int state;
};

template <class Config>
struct WalkShape {
  static constexpr ChunkWgmmaConfig kConfig = Config::kValue;
  static constexpr int kTileK = kConfig.tile_k;
  static constexpr int kTileV = kConfig.tile_v;
  static constexpr int kBoxesK = kTileK / 64;
  static constexpr int kBoxesV = kTileV / 64;

  static constexpr int kStages = kConfig.stages;
  static constexpr int kDecaySlots = 3;
  static constexpr int kWeightSlots = kTileK == 256 ? 1 : 2;
  /// A tile of v is held longer than q and k: the output goes out from where it was.
  static constexpr int kValueSlots = kTileK == 256 && kStages == 3 ? kStages : kStages + 1;
  /// Chunks that a block asks the memory for at once. One of a whole head of 128 channels is 48 KB
  /// and keeps the memory busy; with more, requests queue up, and some multiprocessors get ahead of
  /// others: blocks of equal work end up to 20 us apart. Narrower chunks do not bear a limit.
  static constexpr int kChunksUnderWay = kTileK == 128 && kTileV == 128 ? 1 : kValueSlots;

  static constexpr int kStateWarpgroups = kBoxesV;
  static constexpr int kThreads = 128 * (2 + kStateWarpgroups);
  /// Their sum over the warpgroups is at most what an SM has for each of a block's lanes: 512.
  static constexpr RoleRegisters kRegisters =
      kStateWarpgroups == 2 ? RoleRegisters{24, 104, 192} : RoleRegisters{40, 104, 256};
  /// A state of 256 channels leaves no registers for the values of the next chunk.
  static constexpr bool kFetchesAhead = kTileK <= 128;
};

}  // namespace attune::cuda
