// The program: from arguments to an exit code. Everything below it throws; only here are errors
// printed.
#pragma once

#include <string>
#include <vector>

#include "program/exit_code.hpp"

namespace attune::cli {

/// Runs `attune ARGUMENTS...` with results on standard output and all else on standard error.
ExitCode run_program(const std::vector<std::string>& arguments);

}  // namespace attune::cli
