#include "traced_calls.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

namespace attune::test {
namespace {

/// Runs `call` under strace; false where there is none, or none that may trace.
bool trace(const Sandbox& here, Call call, const std::string& filter) {
  call.under = {"strace", "-f", "-qq", "-o", here.file("trace"), "-e", filter};
  try {
    return here.run(call).exit_code == 0;
  } catch (const std::runtime_error&) {
    return false;  // not installed
  }
}

}  // namespace

std::map<std::string, int> count_system_calls(const Sandbox& here, Call call,
                                              const std::vector<std::string>& names) {
  std::string filter = "trace=";
  for (const std::string& name : names)
    filter += std::string(&name == names.data() ? "?" : ",?") + name;
  if (!trace(here, Call{{"--version"}}, filter)) return {};
  EXPECT_TRUE(trace(here, std::move(call), filter)) << here.errors_so_far();
  std::map<std::string, int> most;
  std::map<std::pair<std::string, std::string>, int> counts;
  std::ifstream lines(here.file("trace"));
  for (std::string line; std::getline(lines, line);) {
    std::string process, name;
    std::istringstream words(line);
    words >> process;
    std::getline(words >> std::ws, name, '(');
    most[name] = std::max(most[name], ++counts[{process, name}]);
  }
  return most;
}

Call inject(const Sandbox& here, Call call, const std::string& name, int n,
            const std::string& what) {
  call.under = {"strace",
                "-f",
                "-qq",
                "-o",
                here.file("trace"),
                "-e",
                "trace=" + name,
                "-e",
                "inject=" + name + ":" + what + ":when=" + std::to_string(n)};
  // Faster, and deaf to signals (strace 6.1).
  if (!what.starts_with("signal")) call.under.insert(call.under.begin() + 1, "--seccomp-bpf");
  return call;
}

}  // namespace attune::test
