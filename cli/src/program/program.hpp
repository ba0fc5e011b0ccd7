// The program: from arguments to an exit code. Everything below it throws; only here are errors
// printed.
#pragma once

#include <string>
#include <vector>

#include "program/exit_code.hpp"
#include "program/verb.hpp"

namespace attune::cli {

/// Runs `attune ARGUMENTS...` with results on standard output and all else on standard error. Where
/// `register_ops` is null, all ops come from plugins.
ExitCode run_program(const std::vector<std::string>& arguments, RegisterOps register_ops);

}  // namespace attune::cli
