#include <attune/core/error.hpp>
#include <attune/core/text_lines.hpp>

namespace attune {

bool TextLines::next(std::string& line) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  line.clear();
  ++number_;
  int c = in_.get();
  bool any = false;
  for (; c != std::istream::traits_type::eof(); c = in_.get()) {
    any = true;
    if (++bytes_ > max_bytes_) throw InvalidArgument(str("more than ", max_bytes_, " bytes"));
    if (c == '\n') break;
    line += static_cast<char>(c);
    if (line.size() > max_line_bytes_) {
      throw InvalidArgument(str("longer than ", max_line_bytes_, " bytes"));
    }
  }
  if (in_.bad()) throw InvalidArgument("cannot be read");
  if (line.ends_with('\r')) line.pop_back();
  if (number_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return any;
}

}  // namespace attune
