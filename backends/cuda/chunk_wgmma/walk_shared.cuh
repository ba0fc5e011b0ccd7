// What a block of the chunked walk has in shared memory.
#pragma once

#include "cuda/chunk_wgmma/decay.cuh"
#include "cuda/chunk_wgmma/loads.cuh"
#include "cuda/chunk_wgmma/walk_shape.hpp"

namespace attune::cuda {

template <class Shape_>
struct WalkShared {
  using Shape = Shape_;
  std::byte q[Shape::kStages][Shape::kBoxesK * kBoxBytes];
  std::byte k[Shape::kStages][Shape::kBoxesK * kBoxBytes];
  std::byte v[Shape::kValueSlots][Shape::kBoxesV * kBoxBytes];  // and then o
  std::byte weights[Shape::kWeightSlots][kBoxBytes];
  ChunkDecays decays[Shape::kDecaySlots];
  Ring<Shape::kStages> q_ring;
  Ring<Shape::kStages> k_ring;
  Ring<Shape::kValueSlots> v_ring;
  Ring<Shape::kWeightSlots> weight_ring;
  Ring<Shape::kDecaySlots> decay_ring;
  SharedBarrier output_full[Shape::kValueSlots];  // v has been used and o is in its place
  SharedBarrier k_landed;
  SharedBarrier v_landed;
};
/// What a block may have on sm_90.
inline constexpr std::size_t kMostSharedBytes = 227 * 1024;

/// Dynamic shared memory begins at a multiple of 1024 bytes in a kernel that has no other.
inline constexpr std::uint32_t kTileAlignment = 1024;
extern __shared__ std::byte walk_memory[];

}  // namespace attune::cuda
