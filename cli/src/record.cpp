// `attune record -- PROGRAM`: runs a program that uses attune, and counts the problems that nothing
// was tuned for.
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "spec.hpp"
#include "text.hpp"
#include "verb.hpp"

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

void summarize(const Invocation& call, const std::string& path) {
  if (!std::filesystem::exists(path)) {
    call.note("nothing untuned was met");
    return;
  }
  std::int64_t hits = 0;
  try {
    const std::vector<Spec> specs = read_specs(std::vector<std::string>{"@" + path});
    for (const Spec& spec : specs) hits += spec.recorded.hits;
    if (specs.empty()) return;
  } catch (const UsageError& error) {
    call.note(
        str("what was counted cannot be read: ", error.what()));  // the program ran all the same
    return;
  }
  call.note(str(hits, " calls without a tuned config are counted in ", path,
                ". Tune them: attune tune @", path));
}

ExitCode run(const Invocation& call) {
  if (call.words.empty()) throw UsageError("expected -- and a program with its arguments");
  std::error_code error;
  const std::string given = call.options.text("output").value_or(std::string(kFile));
  const std::string path =
      std::filesystem::absolute(given, error).string();  // it may change folders
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
          "The exit status is the program's.",
      .options = {{"output", '\0', "FILE", "where to count; default shapes.jsonl", false}},
      .run = run};
}

}  // namespace attune::cli
