// `attune tune --dry-run`: what would be done, and about how long it would take.
#pragma once

#include <span>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

/// The targets in their order, with what is known of each. Throws what a kernel's own count throws.
ExitCode print_plan(const Invocation& call, const CommandContext& command,
                    const std::vector<Target>& targets);

/// The problems by the shard that each belongs to, of `shards`, and what every shard comes to. A
/// shard whose problems are of devices that are not here has no estimate.
ExitCode print_shards(const Invocation& call, const CommandContext& command,
                      std::vector<ListedProblem> problems, int shards);

}  // namespace attune::cli
