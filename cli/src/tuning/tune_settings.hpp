// What the command line says of how candidates are run and timed.
#pragma once

#include <cstdint>

#include <attune/tuner/tuner.hpp>

#include "program/verb.hpp"

namespace attune::cli {

/// Of searches from `seed` on. Throws UsageError.
Tuner::Settings tuner_settings(const Invocation& call, std::uint64_t seed);

}  // namespace attune::cli
