#include "output/progress.hpp"

#include <unistd.h>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kPlainLine{10};

}  // namespace

Progress::Progress(bool quiet)
    : quiet_(quiet),
      terminal_(inspect_terminal(STDERR_FILENO, ColorMode::kNever)),
      last_(Clock::now()) {
  set_log_sink([this](LogLevel level, std::string_view message) {
    write_above(str(level == LogLevel::kWarning ? "attune: warning: " : "attune: ", message, '\n'));
  });
}

Progress::~Progress() {
  set_log_sink({});
  write_above("");
}

void Progress::update(std::string_view line) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  const Clock::duration least =
      terminal_.present ? Clock::duration(kRedraw) : Clock::duration(kPlainLine);
  if (quiet_ || now - last_ < least) return;
  last_ = now;
  if (terminal_.present) {
    write_error("\r\x1b[K" +
                shorten(printable(line), static_cast<std::size_t>(terminal_.width) - 1));
    drawn_ = true;
  } else {
    write_error(printable(line) + '\n');
  }
}

void Progress::finish(std::string_view line) {
  if (!quiet_) write_above(printable(line) + '\n');
}

void Progress::write_above(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (drawn_) write_error("\r\x1b[K");
  drawn_ = false;
  write_error(text);
}

}  // namespace attune::cli
