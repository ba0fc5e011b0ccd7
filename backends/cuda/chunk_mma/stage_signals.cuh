// What two roles of a block tell each other by named barriers: loaders fill stages of shared memory in
// turn, walkers are done with them in the same order.
#pragma once

#include "cuda/chunk_mma/stages.cuh"

namespace attune::cuda::chunk_mma {

/// kThreads: of each role. Chunks are whatever fills a stage.
template <int kThreads>
class StageSignals {
 public:
  __device__ explicit StageSignals(int stages) : stages_(stages) {}

  /// The chunk is there.
  __device__ __forceinline__ void publish(int chunk) const { arrive(full(chunk)); }
  __device__ __forceinline__ void wait_published(int chunk) const { sync(full(chunk)); }
  /// It is done with; `chunks` is the number of all.
  __device__ __forceinline__ void release(int chunk, int chunks) const {
    if (chunk + stages_ < chunks) arrive(empty(chunk));
  }
  /// The stage of a chunk may be written: what was in it has been released.
  __device__ __forceinline__ void wait_released(int chunk) const {
    if (chunk >= stages_) sync(empty(chunk));
  }
  /// What all loaders have written is there for them.
  __device__ __forceinline__ void loaders_sync() const { named_barrier_sync<kOfLoaders>(kThreads); }

 private:
  static constexpr int kOfLoaders = 1, kFull = 2, kEmpty = 5;  // of up to three stages

  __device__ int full(int chunk) const { return kFull + stage_number(chunk, stages_); }
  __device__ int empty(int chunk) const { return kEmpty + stage_number(chunk, stages_); }
  __device__ static void arrive(int barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(2 * kThreads) : "memory");
  }
  __device__ static void sync(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(2 * kThreads) : "memory");
  }

  int stages_;
};

}  // namespace attune::cuda::chunk_mma
