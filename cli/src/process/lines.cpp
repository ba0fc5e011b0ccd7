#include "process/lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace attune::cli {

bool write_line(int descriptor, std::string_view line) {
  const std::string text = std::string(line) + '\n';
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

bool LineReader::take_line(std::string& line) {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) return false;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return true;
}

LineReader::Result LineReader::read(std::string& line, Clock::time_point deadline,
                                    const std::function<bool()>& stop) {
  constexpr std::chrono::milliseconds kSlice{100};
  for (;;) {
    if (take_line(line)) return Result::kLine;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return Result::kLate;
    if (stop()) return Result::kStopped;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(std::min(left, kSlice).count())) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Result::kEnd;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace attune::cli
