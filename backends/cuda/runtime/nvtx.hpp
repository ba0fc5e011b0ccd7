// NVTX as the profiler of attune's ranges (core/profiler.hpp).
#pragma once

namespace attune::cuda {

/// Once in a process, whatever is called meanwhile. Nothing where the toolkit has no NVTX.
void give_nvtx_ranges();

}  // namespace attune::cuda
