// What `attune tune` is going to do: which problems, in which order, and about how long it takes.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

/// Recorded problems that cost the most first: by how often they came times how long one call
/// takes, estimated from the op's traffic and operations. Problems that were not recorded keep
/// their order and come last.
void order_by_cost(std::vector<Target>& targets);

/// The order in which several devices take the targets, so that they end at about the same time: as
/// they are while they were recorded, and then those that take longest to tune first.
std::vector<std::size_t> longest_first(const std::vector<Target>& targets);

/// Microseconds of one call, to within a factor of a few: enough to tell long problems from short.
double estimated_call_us(const Target& target);

/// How many candidates tuning the target tries.
std::size_t candidate_count(const CommandContext& command, const Target& target);

/// Seconds that tuning it takes, about, and at most.
double estimated_tuning_s(const Target& target, std::size_t candidates,
                          std::chrono::milliseconds budget);

}  // namespace attune::cli
