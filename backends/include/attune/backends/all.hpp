// All backends of this build.
#pragma once

#include <attune/core/registry.hpp>

namespace attune {

/// Adds the kernels and devices of every backend. The registry must have attune's ops.
void register_backends(Registry& registry);

}  // namespace attune
