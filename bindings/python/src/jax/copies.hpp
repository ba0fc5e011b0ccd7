// Copies within a device, for states that XLA does not let come out where they went in: slices of
// arrays that a compiled loop goes over, on a GPU.
#pragma once

#include <cstddef>

#include <attune/attune.h>

namespace attune_jax {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// Queues a copy on the device's stream, or makes it on a CPU. False where that cannot be done.
bool queue(const Copy& copy, attune_device device, void* stream);

}  // namespace attune_jax
