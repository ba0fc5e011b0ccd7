#include "attune_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <gtest/gtest.h>

extern char** environ;

namespace attune::test {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Whether a launcher that started the tests has set it: a shard of what they are is nobody's.
bool is_of_a_launcher(std::string_view variable) {
  for (const char* beginning : {"SLURM_", "OMPI_", "PMIX_", "PMI_", "FLUX_", "MPI_LOCALRANKID=",
                                "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "JOB_COMPLETION_INDEX="}) {
    if (variable.starts_with(beginning)) return true;
  }
  return false;
}

/// The environment of the test without anything that would reach the program.
std::vector<std::string> clean_environment(const std::string& home,
                                           const std::vector<std::string>& more) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool ours = text.starts_with("ATTUNE_") || text.starts_with("XDG_DATA_HOME=") ||
                      text.starts_with("XDG_RUNTIME_DIR=") || text.starts_with("NO_COLOR=") ||
                      text.starts_with("TMPDIR=");
    if (!ours && !is_of_a_launcher(text)) environment.emplace_back(text);
  }
  environment.push_back("XDG_DATA_HOME=" + home + "/data");
  environment.push_back("TMPDIR=" + home);
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

void redirect_output(posix_spawn_file_actions_t& actions, Stdout kind, const std::string& path,
                     int pipe_end) {
  switch (kind) {
    case Stdout::kFile:
      posix_spawn_file_actions_addopen(&actions, 1, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
      break;
    case Stdout::kFull:
      posix_spawn_file_actions_addopen(&actions, 1, "/dev/full", O_WRONLY, 0);
      break;
    case Stdout::kClosedPipe:
      posix_spawn_file_actions_adddup2(&actions, pipe_end, 1);
      break;
    case Stdout::kClosed:
      posix_spawn_file_actions_addclose(&actions, 1);
      break;
  }
}

}  // namespace

nlohmann::json Outcome::json() const {
  nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
  if (!parsed.is_discarded()) return parsed;
  ADD_FAILURE() << "not JSON: " << out << "\nstandard error: " << err;
  return nullptr;
}

pid_t Sandbox::start(const Call& call) const {
  std::ofstream(file("stdin")) << call.input;
  std::vector<std::string> arguments = call.under;
  arguments.emplace_back(program_);
  arguments.insert(arguments.end(), call.arguments.begin(), call.arguments.end());
  std::vector<std::string> environment =
      clean_environment(folder_.path().string(), call.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  ::close(ends[0]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, file("stdin").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, file("stderr").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  redirect_output(actions, call.output, file("stdout"), ends[1]);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0].c_str(), &actions, nullptr,
                                 pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  return child;
}

Outcome Sandbox::finish(pid_t child) const {
  int status = 0;
  rusage used{};
  if (::wait4(child, &status, 0, &used) != child) throw std::runtime_error("cannot wait");
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.peak_kib = used.ru_maxrss;
  outcome.out = read_file(file("stdout"));
  outcome.err = read_file(file("stderr"));
  return outcome;
}

std::string Sandbox::errors_so_far() const { return read_file(file("stderr")); }

Outcome Sandbox::run(const Call& call) const {
  std::filesystem::remove(file("stdout"));
  return finish(start(call));
}

}  // namespace attune::test
