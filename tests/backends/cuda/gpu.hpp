// The GPU that tests run on, where there is one.
#pragma once

#include <attune/core/device.hpp>
#include <attune/core/tensor.hpp>

#include "support/heuristic_context.hpp"

namespace attune::test {

/// For GTEST_SKIP where find_gpu() finds none.
inline constexpr const char* kNeedsGpu = "needs a GPU";

/// gpu:0, or null.
inline const Device* find_gpu() {
  return heuristic_context().registry().find_device({.backend = "gpu", .index = 0});
}

/// A copy of a host tensor, complete when this returns.
inline Tensor upload(const Tensor& host, const Device& gpu) {
  Tensor copy(host.dtype(), host.shape(), gpu);
  if (host.bytes() > 0) {
    gpu.copy_to_device(copy.view().data, host.view().data, host.bytes(), nullptr);
    gpu.synchronize(nullptr);
  }
  return copy;
}

}  // namespace attune::test
