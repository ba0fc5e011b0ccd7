// Lines of text through descriptors: what two processes talk in.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace attune::cli {

/// Writes `line` and a line feed. False when nobody reads any more, or writing fails otherwise.
bool write_line(int descriptor, std::string_view line);

class LineReader {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Result { kLine, kEnd, kLate, kStopped };

  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  /// The next line, without its line feed. `stop` is asked every tenth of a second.
  Result read(std::string& line, Clock::time_point deadline, const std::function<bool()>& stop);

 private:
  bool take_line(std::string& line);

  int descriptor_;
  std::string buffer_;
};

}  // namespace attune::cli
