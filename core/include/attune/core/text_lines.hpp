// The lines of a text that somebody else wrote, one after the other and up to bounds: a text may be
// one line without an end, or have no end at all.
#pragma once

#include <cstddef>
#include <istream>
#include <string>

namespace attune {

class TextLines {
 public:
  /// At most `max_line_bytes` of a line and `max_bytes` of all lines are read. `in` must outlive
  /// it.
  TextLines(std::istream& in, std::size_t max_line_bytes, std::size_t max_bytes)
      : in_(in), max_line_bytes_(max_line_bytes), max_bytes_(max_bytes) {}

  /// Reads the next line, without its end ("\n" or "\r\n"); the first one without a byte order mark
  /// as well. False at the end of the text. Throws InvalidArgument when a bound is passed, and when
  /// the text cannot be read.
  bool next(std::string& line);

  /// That of the line that was read last, or could not be read; the first is 1.
  std::size_t number() const { return number_; }

 private:
  std::istream& in_;
  std::size_t max_line_bytes_;
  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::size_t number_ = 0;
};

}  // namespace attune
