// All backends of this build.
#pragma once

#include <attune/core/registry.hpp>

namespace attune {

/// Adds every backend, with its kernels and devices. The registry must have attune's ops.
void register_backends(Registry& registry);

}  // namespace attune
