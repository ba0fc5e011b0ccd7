#include "recording/record_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/output_file.hpp>

#include "recording/shared_file.hpp"

namespace attune::chain {
namespace {

constexpr off_t kLarge = off_t{1} << 20;  // rewritten from here on
constexpr off_t kMost = off_t{16} << 20;
constexpr std::size_t kHeadBytes = 16384;

/// What a line of JSON is to a recording. It is read without building it, for lines of others may
/// be of any size and depth.
class LineReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// Whether the line is JSON at all.
  bool read(std::string_view line) { return nlohmann::json::sax_parse(line, this); }
  /// Whether it is an object with a string "op".
  bool has_op() const { return has_op_; }
  /// Whether it also is as recorders write it: values, and an object "recorded" of values whose
  /// last is "hits".
  bool is_record() const { return has_op_ && is_flat_ && hits_.has_value(); }
  std::uint64_t hits() const { return *hits_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t number) override {
    value();
    if (depth_ == 2 && key_ == "hits") hits_ = number;
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override {
    has_op_ = has_op_ || (depth_ == 1 && in_object_ && key_ == "op");
    return value();
  }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool start_object(std::size_t) override {
    is_flat_ = is_flat_ && (depth_ == 0 || (depth_ == 1 && key_ == "recorded"));
    if (depth_ == 0) in_object_ = true;
    ++depth_;
    return value();
  }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override {
    is_flat_ = false;
    ++depth_;
    return value();
  }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool value() {
    hits_.reset();  // it was not the last
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  std::string key_;  // the latest
  std::size_t depth_ = 0;
  bool in_object_ = false;  // the line is one
  bool has_op_ = false;
  bool is_flat_ = true;
  std::optional<std::uint64_t> hits_;
};

/// A line of a recorder's. What is before its count says which problem it is of.
struct Record {
  std::string_view problem;
  std::uint64_t hits = 0;
};

std::optional<Record> read_record(std::string_view line) {
  constexpr std::string_view kCount = "\"hits\":";
  constexpr std::string_view kEnd = "}}";
  if (!line.ends_with(kEnd)) return std::nullopt;
  line.remove_suffix(kEnd.size());
  const std::size_t last = line.find_last_not_of("0123456789");
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view problem = line.substr(0, last + 1);
  if (!problem.ends_with(kCount)) return std::nullopt;
  LineReader reader;
  const std::string_view whole(line.data(), line.size() + kEnd.size());
  if (!reader.read(whole) || !reader.is_record()) return std::nullopt;
  return Record{problem, reader.hits()};
}

/// The first line of `text`, without its line feed, which is taken off.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

/// Whether a file that begins with `head` is one; `is_all` when there is no more of it.
bool is_recording(std::string_view head, bool is_all) {
  if (!is_all) head = head.substr(0, head.rfind('\n') + 1);  // whole lines
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    LineReader reader;
    return reader.read(line) && reader.has_op();
  }
  return false;
}

void refuse_unless_recording(const std::string& path, const SharedFile& file) {
  const off_t size = file.size();
  if (size == 0) return;
  const std::string head = file.read(0, kHeadBytes);
  if (is_recording(head, static_cast<off_t>(head.size()) >= size)) return;
  throw FileError(path +
                  ": is there and is no recording, whose first line is a JSON object with an "
                  "\"op\"; it is left as it is: remove it, or name another file");
}

/// Puts a file with the sums in the place of this one, whose lock is held.
void compact(const std::string& path, const SharedFile& file) {
  const std::string text = file.read(0, kMost);
  const std::string sums = sum_recorded(text);
  if (sums.size() * 2 > text.size() || !file.is_at_its_path()) return;  // it is what there is
  // What it is has been looked at when it was opened.
  constexpr OutputFile::Kind kRecording{"recording", [](std::string_view) { return true; }};
  try {
    OutputFile made(path, kRecording);
    made.write(sums);
    made.commit();
  } catch (const FileError& error) {
    log_once(LogLevel::kDebug, str(error.what(), "; the recording stays large"));
  }
}

/// Whether the file ends within a line, as after a power failure.
bool ends_within_a_line(const SharedFile& file, off_t size) {
  return size > 0 && file.read(size - 1, 1) != "\n";
}

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMostHits = std::numeric_limits<std::uint64_t>::max();
  return kMostHits - a < b ? kMostHits : a + b;
}

}  // namespace

std::string sum_recorded(std::string_view text) {
  struct Piece {
    std::string_view text;  // of a record up to its count, or lines of others
    std::optional<std::uint64_t> hits;
  };
  std::vector<Piece> pieces;
  std::map<std::string_view, std::size_t> places;  // of records, by problem
  while (!text.empty()) {
    const char* const begin = text.data();
    const std::optional<Record> record = read_record(take_line(text));
    if (record) {
      const auto [place, is_new] = places.emplace(record->problem, pieces.size());
      if (is_new) pieces.push_back({record->problem, 0});
      std::uint64_t& hits = *pieces[place->second].hits;
      hits = sum_of(hits, record->hits);
      continue;
    }
    const std::string_view line(begin, static_cast<std::size_t>(text.data() - begin));
    std::string_view* const latest =
        pieces.empty() || pieces.back().hits ? nullptr : &pieces.back().text;
    if (latest != nullptr && latest->data() + latest->size() == begin) {
      *latest = {latest->data(), latest->size() + line.size()};
    } else {
      pieces.push_back({line, std::nullopt});
    }
  }
  std::string sums;
  for (const Piece& piece : pieces) {
    sums += piece.text;
    if (piece.hits) sums += str(*piece.hits, "}}\n");
  }
  return sums;
}

bool append_recorded(const std::string& path, std::string_view line,
                     std::chrono::milliseconds patience) {
  SharedFile file = open_locked(path, patience);
  refuse_unless_recording(path, file);
  const off_t before = file.size();
  const std::string text = str(ends_within_a_line(file, before) ? "\n" : "", line);
  const off_t after = before + static_cast<off_t>(text.size());
  if (after > kMost) return false;
  file.append(text);
  // At each doubling only, or a file of distinct problems would be summed for every line.
  for (off_t limit = kLarge; limit <= kMost; limit *= 2) {
    if (before < limit && after >= limit) compact(path, file);
  }
  return true;
}

}  // namespace attune::chain

namespace attune {

void check_recording(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 || errno != ENOENT) {
    const chain::SharedFile file(path, FileLinks::kFollow);
    chain::refuse_unless_recording(path, file);
    if (file.size() >= chain::kMost) throw FileError(path + ": holds 16 MiB, which is the most");
    return;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (faccessat(AT_FDCWD, folder.empty() ? "." : folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    throw FileError(str(path, ": cannot be made: ", std::generic_category().message(errno)));
  }
}

}  // namespace attune
