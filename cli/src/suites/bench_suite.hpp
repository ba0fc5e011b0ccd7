// `attune bench --suite NAME`.
#pragma once

#include "program/verb.hpp"
#include "suites/suites.hpp"

namespace attune::cli {

/// Times the selected choices of the suite's rows that have every one of the call's words. A row
/// that no kernel takes is printed without a time. Throws Unavailable without the suite's device,
/// UsageError when no row is left.
ExitCode bench_suite(const Invocation& call, const Suite& suite, bool may_tune);

/// The same of a suite whose ceilings are measured in the run: on the host.
/// First the host's ceilings, for each number of threads, then the selected choices of the suite's
/// rows that have every one of the call's words, each beside the naive loop (a backward pass:
/// beside the forward pass) and the ceiling that binds it. Throws UsageError when no row is left.
ExitCode bench_host_suite(const Invocation& call, const Suite& suite, bool may_tune);

}  // namespace attune::cli
