// `attune bench --suite NAME` of a suite whose ceilings are measured in the run: on the host.
#pragma once

#include "program/verb.hpp"
#include "suites/suites.hpp"

namespace attune::cli {

/// First the host's ceilings, for each number of threads, then the selected choices of the suite's
/// rows that have every one of the call's words, each beside the naive loop (a backward pass:
/// beside the forward pass) and the ceiling that binds it. Throws UsageError when no row is left.
ExitCode bench_host_suite(const Invocation& call, const Suite& suite, bool may_tune);

}  // namespace attune::cli
