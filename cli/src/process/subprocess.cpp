#include "process/subprocess.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <attune/core/error.hpp>

#include "process/descriptor.hpp"

extern char** environ;

namespace attune::cli {
namespace {

void check(int error, const char* what) {
  if (error != 0) throw ExecutionError(str(what, ": ", std::strerror(error)));
}

/// Starts this program's file with standard output going to `output`.
pid_t spawn_self(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  std::string name = "attune";
  argv.push_back(name.data());
  std::vector<std::string> copies = arguments;
  for (std::string& copy : copies) argv.push_back(copy.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  check(posix_spawn_file_actions_init(&actions), "posix_spawn");
  int error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t child = 0;
  if (error == 0)
    error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check(error, "a second attune process");
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

}  // namespace

Finished run_self(const std::vector<std::string>& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
  const Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);
  const pid_t child = spawn_self(arguments, writer.number());
  writer.close();  // or reading would never end
  Finished finished;
  finished.output = read_all(reader.number());
  finished.exit_code = wait_for(child);
  finished.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return finished;
}

}  // namespace attune::cli
