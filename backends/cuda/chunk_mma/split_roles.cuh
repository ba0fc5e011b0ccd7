// The two roles of a block that walks chunks of f32. Loaders bring chunks to stages of shared memory,
// split and with their decays and scores; walkers, as many threads, take the state through them. So
// the next chunk's splits fill the time in which products of this one wait for each other.
#pragma once

#include "cuda/chunk_mma/channel_decays.cuh"
#include "cuda/chunk_mma/split_arrivals.cuh"
#include "cuda/chunk_mma/split_products.cuh"
#include "cuda/chunk_mma/stage_signals.cuh"

namespace attune::cuda::chunk_mma {

template <class Shape, Gated kGated>
using DecaysOf = std::conditional_t<kGated == Gated::kNone, SplitDecayScan,
                                    ChannelDecayLoads<Shape, kGated == Gated::kValues>>;

/// What chunks have in shared memory.
template <class Shape, Gated kGated>
class SplitMemory {
 public:
  using Stage = SplitStage<Shape, true>;
  using Scores = SplitScores<Shape>;
  using Decays = typename DecaysOf<Shape, kGated>::Decays;

  __device__ SplitMemory(std::byte* begin, int stages)
      : begin_(begin),
        stages_(stages),
        decays_(reinterpret_cast<Decays*>(begin + stages * (Stage::kBytes + Scores::kBytes))) {}

  __device__ int stages() const { return stages_; }
  __device__ Stage stage(int chunk) const {
    return Stage(shared_address(begin_) + stage_number(chunk, stages_) * Stage::kBytes);
  }
  __device__ Scores scores(int chunk) const {
    return Scores(shared_address(begin_) + stages_ * Stage::kBytes +
                  stage_number(chunk, stages_) * Scores::kBytes);
  }
  __device__ Decays& decays(int chunk) const { return decays_[chunk % kSplitDecayStages]; }
  /// What lies behind them.
  __device__ void* end() const { return decays_ + kSplitDecayStages; }

 private:
  std::byte* begin_;
  int stages_;
  Decays* decays_;
};

/// The registers of a thread of each role: together all of a multiprocessor's.
template <class Shape>
inline constexpr int kLoaderRegisters = Shape::kKeys > kPanelChannels ? 88 : 104;
template <class Shape>
inline constexpr int kWalkerRegisters = 256 - kLoaderRegisters<Shape>;

/// What the loaders of a block do.
template <class Shape, Gated kGated>
__device__ __forceinline__ void load_chunks(const SplitWalkParams& p, const Walk& walk,
                                            const SplitMemory<Shape, kGated>& memory,
                                            const StageSignals<Shape::kThreads>& signals) {
  ArrivingTokens<Shape> tokens(p, walk);
  DecaysOf<Shape, kGated> scan(p, walk);
  const bool scans = scan.is_done_by(thread_of_role<Shape>(), Shape::kThreads);
  const auto copy = [&](int chunk) {
    if (chunk < walk.chunks) signals.wait_released(chunk);
    tokens.copy(memory.stage(chunk), walk, chunk);
  };
  // Of two stages walkers have the other one until they are given this one.
  const bool copies_early = memory.stages() > 2;
  copy(0);
  if (scans) {
    scan.fetch(walk, 0);
    scan.sum(memory.decays(0));
    scan.fetch(walk, 1);
  }
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    copy_async_wait<0>();
    tokens.split_there(memory.stage(chunk));
    hand_to_products();
    signals.loaders_sync();  // the chunk's tiles and decays are there
    if (copies_early) copy(chunk + 1);
    make_split_scores(memory.stage(chunk), memory.scores(chunk), memory.decays(chunk), p.scale);
    hand_to_products();  // of walkers, which take the scores from there, too
    if (scans) {
      scan.sum(memory.decays(chunk + 1));
      scan.fetch(walk, chunk + 2);
    }
    signals.publish(chunk);
    if (!copies_early) copy(chunk + 1);
  }
}

}  // namespace attune::cuda::chunk_mma
