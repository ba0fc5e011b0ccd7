#include "process/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <thread>

#include <attune/core/error.hpp>

#include "output/text.hpp"

extern char** environ;

namespace attune::cli {
namespace {

void check(int error, const char* what) {
  if (error != 0) throw ExecutionError(str(what, ": ", std::strerror(error)));
}

struct Pipe {
  Descriptor read_end, write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// posix_spawn's attributes and actions, released whatever happens.
struct SpawnPlan {
  SpawnPlan() {
    check(posix_spawn_file_actions_init(&actions), "posix_spawn");
    check(posix_spawnattr_init(&attributes), "posix_spawn");
  }
  ~SpawnPlan() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

/// Where a child finds a descriptor of this process.
struct Passed {
  int here, there;
};

enum class Group { kOurs, kItsOwn };

/// Runs `attune ARGUMENTS...`. In a group of its own Ctrl-C does not reach it, and it starts with
/// no signal blocked or ignored.
pid_t spawn_self(const std::vector<std::string>& arguments, std::initializer_list<Passed> passed,
                 Group group) {
  std::vector<std::string> words{"attune"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  SpawnPlan plan;
  for (const auto& [here, there] : passed)
    check(posix_spawn_file_actions_adddup2(&plan.actions, here, there), "posix_spawn");
  if (group == Group::kItsOwn) {
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&usual, number);
    check(posix_spawnattr_setsigmask(&plan.attributes, &none), "posix_spawn");
    check(posix_spawnattr_setsigdefault(&plan.attributes, &usual), "posix_spawn");
    check(posix_spawnattr_setpgroup(&plan.attributes, 0), "posix_spawn");
    check(
        posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                       POSIX_SPAWN_SETSIGDEF),
        "posix_spawn");
  }
  pid_t child = -1;
  check(
      posix_spawn(&child, "/proc/self/exe", &plan.actions, &plan.attributes, argv.data(), environ),
      "a second attune process");
  return child;
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) check(errno, "waitpid");
  }
  constexpr int kSignalled = 128;  // as shells count
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? str("signal ", number) : str("SIG", name);
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return str("ended the process: exit(", WEXITSTATUS(status), ")");
  const int number = WTERMSIG(status);
  return str("killed by ", signal_name(number),
             number == SIGKILL ? ", as the system does when it is out of memory" : "");
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments)
    : errors_(memfd_create("attune-errors", MFD_CLOEXEC)) {
  check(errors_.number() >= 0 ? 0 : errno, "memfd_create");
  Pipe commands = make_pipe();
  Pipe replies = make_pipe();
  pid_ = spawn_self(arguments,
                    {{commands.read_end.number(), STDIN_FILENO},
                     {replies.write_end.number(), STDOUT_FILENO},
                     {errors_.number(), STDERR_FILENO}},
                    Group::kItsOwn);
  to_child_ = std::move(commands.write_end);
  from_child_ = std::move(replies.read_end);
  reader_ = LineReader(from_child_.number());
}

ChildProcess::~ChildProcess() { finish(std::chrono::milliseconds(0)); }

void ChildProcess::send(std::string_view line) {
  if (write_line(to_child_.number(), line)) return;
  sent_ = errno == EPIPE;  // then it has ended before, by itself
  to_child_.close();
}

bool ChildProcess::has_ended(std::chrono::milliseconds patience) const {
  const auto deadline = LineReader::Clock::now() + patience;
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_) {
      return true;
    }
    if (LineReader::Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool ChildProcess::finish(std::chrono::milliseconds patience) {
  // One that a driver keeps cannot be killed: it is left behind rather than waited for.
  constexpr std::chrono::seconds kUntilKilled{10};
  if (reaped_) return true;
  const bool by_itself = has_ended(patience);
  // Before it is reaped, while its number cannot be another's.
  ::kill(-pid_, SIGKILL);
  reaped_ = has_ended(kUntilKilled) && ::waitpid(pid_, &status_, 0) == pid_;
  return by_itself;
}

std::string ChildProcess::end() {
  constexpr std::chrono::milliseconds kPatience{1000};
  to_child_.close();
  by_itself_ = finish(kPatience);
  if (!sent_) return "could not be told what to run";
  const std::string how = by_itself_ && reaped_ ? describe_status(status_) : "closed its output";
  const std::string words = last_words();
  return words.empty() ? how : str(how, "; it said: ", words);
}

bool ChildProcess::ended_from_outside() const {
  if (!sent_) return true;
  return by_itself_ && reaped_ && WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL;
}

std::string ChildProcess::last_words() const {
  struct stat status {};
  if (::fstat(errors_.number(), &status) != 0) return "";
  std::array<char, 300> bytes;
  const off_t begin = std::max<off_t>(0, status.st_size - static_cast<off_t>(bytes.size()));
  const ssize_t count = ::pread(errors_.number(), bytes.data(), bytes.size(), begin);
  std::string text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

FinishedProcess run_to_its_end(const std::vector<std::string>& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  Pipe output = make_pipe();
  const pid_t child =
      spawn_self(arguments, {{output.write_end.number(), STDOUT_FILENO}}, Group::kOurs);
  output.write_end.close();  // or reading would never end
  FinishedProcess finished;
  finished.output = read_all(output.read_end.number());
  finished.exit_code = wait_for(child);
  finished.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return finished;
}

}  // namespace attune::cli
