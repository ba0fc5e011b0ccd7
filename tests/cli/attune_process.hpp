// The attune program as a test meets it: started with arguments, watched by its streams and exit
// code.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/temporary_folder.hpp"

namespace attune::test {

/// Where standard output goes.
enum class Stdout {
  kFile,        // is read back
  kClosedPipe,  // a pipe that nobody reads
  kFull,        // /dev/full
  kClosed,      // no descriptor at all
};

struct Call {
  std::vector<std::string> arguments;
  std::string input = {};                     // standard input
  std::vector<std::string> environment = {};  // "NAME=value", besides a home of its own
  Stdout output = Stdout::kFile;
  std::vector<std::string> under = {};  // a program and its arguments that is to start attune
};

struct Outcome {
  int exit_code = -1;  // 128 + the signal when one ended it
  std::string out;
  std::string err;
  long peak_kib = 0;  // of memory, of the largest of its processes

  /// `out` as JSON; a test failure, and null, when it is not.
  nlohmann::json json() const;
};

/// A place of its own for the program: its home, its databases, its temporary files.
class Sandbox {
 public:
  explicit Sandbox(std::string program = ATTUNE_PROGRAM) : program_(std::move(program)) {}

  /// Runs to the end.
  Outcome run(const Call& call) const;
  Outcome run(std::vector<std::string> arguments) const { return run(Call{std::move(arguments)}); }

  /// Starts; finish() ends it.
  pid_t start(const Call& call) const;
  Outcome finish(pid_t child) const;
  /// What has been written to standard error so far.
  std::string errors_so_far() const;

  std::string file(const std::string& name) const { return folder_.file(name); }
  /// The database that calls use by default.
  std::string database() const { return folder_.file("data/attune/attune.db"); }

 private:
  std::string program_;
  TemporaryFolder folder_;
};

}  // namespace attune::test
