// This program once more, as another process.
#pragma once

#include <string>
#include <vector>

namespace attune::cli {

struct Finished {
  int exit_code = 0;   // 128 + the signal when one ended it
  std::string output;  // its standard output
  double seconds = 0;
};

/// Runs `attune ARGUMENTS...` to its end; its standard error is this process's. Throws
/// ExecutionError when it cannot be started.
Finished run_self(const std::vector<std::string>& arguments);

}  // namespace attune::cli
