#include "output/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

bool environment_allows_color() {
  const char* no_color = secure_getenv("NO_COLOR");
  const char* term = secure_getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  return term == nullptr || std::strcmp(term, "dumb") != 0;
}

/// Writes all of `text`. Returns the error's number, or 0.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Terminal inspect_terminal(int descriptor, ColorMode mode) {
  Terminal terminal;
  terminal.present = ::isatty(descriptor) == 1;
  terminal.color = mode == ColorMode::kAlways ||
                   (mode == ColorMode::kAuto && terminal.present && environment_allows_color());
  winsize size{};
  if (terminal.present && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
  }
  return terminal;
}

void Output::flush() {
  const std::string text = std::move(buffer_);
  buffer_.clear();
  const int error = write_all(descriptor_, text);
  if (error == EPIPE) throw ClosedPipe();
  if (error != 0) throw ExecutionError(str("standard output: ", std::strerror(error)));
}

void write_error(std::string_view text) { static_cast<void>(write_all(STDERR_FILENO, text)); }

void reserve_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Standard output is opened for reading only: writing to it
    // must fail, as it would have when closed.
    static_cast<void>(::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void ignore_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace attune::cli
