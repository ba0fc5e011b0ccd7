// How the program ends, and the errors that are the command line's own. Scripts rely on the
// numbers.
#pragma once

#include <attune/core/error.hpp>

namespace attune::cli {

enum class ExitCode : int {
  kOk = 0,
  kNo = 1,  // the answer is no: a check failed, damage was found, a problem is not tuned
  kUsage = 2,
  kUnavailable = 3,    // the device, backend or plugin asked for is not there
  kDatabase = 4,       // a database cannot be read or written
  kFailure = 5,        // something was launched or written, and failed
  kInterrupted = 130,  // Ctrl-C; what was finished is kept
};

/// The command line is not understood. The message names the option or argument.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// The reader of standard output has gone, as `head` does: no failure, but nothing is left to do.
class ClosedPipe : public Error {
 public:
  ClosedPipe() : Error("standard output is closed") {}
};

}  // namespace attune::cli
