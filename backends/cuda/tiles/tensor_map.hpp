// Descriptions of tensors for the bulk tensor copy (TMA).
#pragma once

#include <cuda.h>

#include <cstdint>

#include <attune/core/tensor.hpp>

#include "cuda/tiles/panel.hpp"

namespace attune::cuda {

/// Panels of `rows` tokens x 64 channels of one head of a [B, T, H, D] tensor of 16-bit elements.
/// Coordinates are (channel, head, token, batch).
///
/// Rows must start at multiples of 16 bytes and strides be positive where an extent exceeds 1. What L2
/// does not have of one, it fetches by blocks of up to `fetched` bytes, 128 or 256: with what lies
/// beside it, the next panel, or of short rows another head.
CUtensorMap head_map(const ConstTensorView& tensor, int rows, int fetched = 256);

}  // namespace attune::cuda
