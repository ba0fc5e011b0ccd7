// All backends of this build.
#pragma once

#include <string>

#include <attune/core/registry.hpp>

namespace attune {

/// Adds the kernels and devices of every backend. The registry must have attune's ops.
void register_backends(Registry& registry);

/// Why register_backends() found no GPU: "no CUDA driver", "this build has no CUDA backend", ...;
/// "" when there are some.
std::string why_no_gpu();

}  // namespace attune
