// What the GPU's kernels launch.
#pragma once

#include "doubling.hpp"

namespace doubling {

/// y = 2 x, on the stream of the site.
void run_on_gpu(const DoublingProblem& problem, const DoublingArgs& args,
                const attune::LaunchSite& site);
std::span<const Fault> gpu_faults();

}  // namespace doubling
