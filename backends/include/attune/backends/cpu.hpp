// The kernels that run on the host's CPU.
#pragma once

#include <attune/core/registry.hpp>

namespace attune::cpu {

/// Adds the platform "reference": every op, every legal problem, sums and states in double. The
/// oracle that other kernels are checked against. The registry must have attune's ops.
void register_reference_kernels(Registry& registry);

/// Adds the platform "simd": vectorised for AVX-512, AVX2 or what the compiler targets by default,
/// whichever the CPU has, on several threads. The registry must have attune's ops.
void register_simd_kernels(Registry& registry);

/// Both, as a backend.
Backend backend();

}  // namespace attune::cpu
