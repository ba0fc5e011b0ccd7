// What the command line says of how candidates are run and timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <attune/tuner/tuner.hpp>

#include "process/isolated_runner.hpp"
#include "program/verb.hpp"

namespace attune::cli {

/// Where accelerators are asked for by number, the first worker starts at once, beside this process.
std::shared_ptr<IdleWorkers> first_workers(const Invocation& call, bool dry);

/// Of a search from `seed` on, whose workers come from `idle` where there are some: one for each of
/// `devices` accelerators at once, which share this machine's cores with what a launcher started
/// besides. Throws UsageError.
Tuner::Settings tuner_settings(const Invocation& call, std::uint64_t seed, std::size_t devices,
                               std::shared_ptr<IdleWorkers> idle);

}  // namespace attune::cli
