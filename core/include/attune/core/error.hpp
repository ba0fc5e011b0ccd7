// What attune throws, and how its messages are put together.
//
// An exception means "what you asked cannot be done"; it is thrown before anything is launched or
// written. A candidate that does not fit, is wrong or is slow is not an exception: it is a value
// (Support, Trial).
#pragma once

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace attune {

/// The base of everything attune throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call breaks a documented rule. The message names the argument and what was expected of it.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// No registered kernel takes the problem. The message lists every kernel and its reason.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// The named device, backend, platform or op is not there. The message lists what is.
class Unavailable : public Error {
 public:
  using Error::Error;
};

/// Policy `strict`: no tuned config is known for the problem, and nothing may be tried.
class NotTuned : public Error {
 public:
  using Error::Error;
};

/// A file is not what was expected, or cannot be read or written. The message begins with its path.
class FileError : public Error {
 public:
  using Error::Error;
};

/// A config database cannot be read or written. Calls of ops go on without it.
class CacheError : public Error {
 public:
  using Error::Error;
};

/// The work was launched and failed.
class ExecutionError : public Error {
 public:
  using Error::Error;
};

/// The device can no longer be used by this process: a fault of work queued on it, ours or the
/// host's own, took its context along. Nothing that is said of a kernel after that is true of the
/// kernel.
class DeviceFault : public ExecutionError {
 public:
  using ExecutionError::ExecutionError;
};

/// Concatenates its arguments as `<<` prints them, whatever the process's locale.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return out.str();
}

}  // namespace attune
