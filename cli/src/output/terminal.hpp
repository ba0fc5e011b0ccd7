// The terminal, when there is one: standard output that loses nothing, colours, width.
#pragma once

#include <string>
#include <string_view>

namespace attune::cli {

enum class ColorMode { kAuto, kAlways, kNever };

/// What is at the other end of a file descriptor.
struct Terminal {
  bool present = false;  // a terminal, not a file or a pipe
  bool color = false;    // by --color, NO_COLOR, TERM
  int width = 80;        // columns
};
Terminal inspect_terminal(int descriptor, ColorMode mode);

/// Standard output. What was written has arrived when flush() returns.
class Output {
 public:
  explicit Output(int descriptor) : descriptor_(descriptor) {}

  void write(std::string_view text) { buffer_ += text; }
  /// Throws ClosedPipe when nobody reads any more, ExecutionError when writing fails otherwise.
  void flush();

 private:
  int descriptor_;
  std::string buffer_;
};

/// Writes to standard error, whole; failures there have nowhere to go.
void write_error(std::string_view text);

/// Sees to it that descriptors 0, 1 and 2 are open, so that no file that is opened later becomes
/// standard output: results would be written into it.
void reserve_standard_descriptors();

/// Ignores the signals that would end the program where an error can be told instead: SIGPIPE and
/// SIGXFSZ.
void ignore_write_signals();

}  // namespace attune::cli
