// `attune record -- PROGRAM`: runs a program that uses attune, and counts the problems that nothing
// was tuned for.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <attune/core/input_file.hpp>
#include <attune/tuner/recording.hpp>

#include "output/text.hpp"
#include "problems/spec.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kFile = "shapes.jsonl";

/// While one lives, Ctrl-C is for the program that runs, and not for this one.
class LeaveInterrupts {
 public:
  LeaveInterrupts() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &old_interrupt_);
    sigaction(SIGQUIT, &ignore, &old_quit_);
  }
  ~LeaveInterrupts() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGQUIT, &old_quit_, nullptr);
  }
  LeaveInterrupts(const LeaveInterrupts&) = delete;
  LeaveInterrupts& operator=(const LeaveInterrupts&) = delete;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_quit_ {};
};

/// Runs a program found by PATH to its end, with the signals a shell would give it. Its exit code,
/// 128 + the signal when one ended it.
int run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const LeaveInterrupts left;
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw ExecutionError(str(words[0], ": cannot be run: ", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  constexpr int kSignalled = 128;  // as shells count
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

/// Of a program that has ended: what the file holds besides records is no failure.
void summarize(const Invocation& call, const std::string& path) {
  std::error_code error;
  std::int64_t hits = 0;
  try {
    if (std::filesystem::exists(path, error)) {
      for (const Spec& spec : read_specs(std::vector<std::string>{"@" + path})) {
        hits = std::min(hits + spec.recorded.hits, RecordedCalls::kMostHits);
      }
    }
  } catch (const Error& unreadable) {
    return call.note(str("what was counted cannot be read: ", unreadable.what()));
  }
  if (hits == 0) return call.note("nothing untuned was met");
  call.note(
      str(count_text(hits, "call without a tuned config is", "calls without a tuned config are"),
          " counted in ", path, ". Tune them: attune tune @", path));
}

/// As an absolute path, for the program may change folders.
std::string recording_for(const Invocation& call) {
  const std::string given = call.options.text("output").value_or(std::string(kFile));
  std::error_code error;
  const std::string path = std::filesystem::absolute(given, error).string();
  if (error) throw UsageError(str("--output ", given, ": ", error.message()));
  try {
    check_recording(path);
  } catch (const FileError& refused) {
    throw UsageError(str("--output ", refused.what()));
  }
  return path;
}

ExitCode run(const Invocation& call) {
  if (call.words.empty()) throw UsageError("expected -- and a program with its arguments");
  const std::string path = recording_for(call);
  setenv("ATTUNE_RECORD", path.c_str(), 1);
  const int status = run_program(call.words);
  summarize(call, path);
  return static_cast<ExitCode>(status);
}

}  // namespace

Verb record_verb() {
  return {
      .name = "record",
      .summary = "run a program and count the problems nothing was tuned for",
      .usage = {"record [--output FILE] -- PROGRAM ARGUMENTS..."},
      .examples = {"record -- ./serve --requests 1000",
                   "record --output shapes.jsonl -- python3 app.py"},
      .details =
          "Runs the program with ATTUNE_RECORD=FILE in its environment, which any program that "
          "uses attune understands: each problem that is answered by the heuristic, by a "
          "neighbour, or by a stale row is counted there, one JSON object a line. Several "
          "processes may share the file; a further run adds to it. Sizes and types are written, "
          "never tensors.\n"
          "FILE is new, empty, or a recording, whose first line besides comments is a JSON object "
          "with an \"op\"; nothing else is added to. Lines of your own in it stay as they are, "
          "and symbolic links are followed.\n"
          "The exit status is the program's.",
      .options = {{"output", '\0', "FILE", "where to count; default shapes.jsonl", false}},
      .run = run};
}

}  // namespace attune::cli
