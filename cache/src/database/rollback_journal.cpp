#include "database/rollback_journal.hpp"

#include <bit>
#include <optional>

#include <attune/core/input_file.hpp>

namespace attune {

std::uint32_t integer_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

namespace {

constexpr std::uint64_t kSegmentHeaderBytes = 28;

std::string bytes_at(const InputFile& file, std::uint64_t at, std::uint64_t count) {
  std::string bytes(count, '\0');
  file.read_at(at, bytes.data(), count);
  return bytes;
}

/// A header of the journal: one for each time it was synchronised (fileformat2.html, 3).
struct Segment {
  std::uint32_t records = 0;
  std::uint32_t pages_before = 0;  // of the database
  std::uint64_t sector = 0;        // bytes; a header takes one
  std::uint64_t page = 0;          // bytes
};

std::optional<Segment> read_segment(const InputFile& journal, std::uint64_t at) {
  constexpr std::string_view kMagic("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
  constexpr std::uint64_t kMost = 65536;
  if (at + kSegmentHeaderBytes > journal.size()) return std::nullopt;
  const std::string bytes = bytes_at(journal, at, kSegmentHeaderBytes);
  const Segment segment{integer_at(bytes, 8), integer_at(bytes, 16), integer_at(bytes, 20),
                        integer_at(bytes, 24)};
  const auto is_size = [](std::uint64_t size, std::uint64_t least) {
    return size >= least && size <= kMost && std::has_single_bit(size);
  };
  const bool legal =
      bytes.starts_with(kMagic) && is_size(segment.sector, 32) && is_size(segment.page, 512);
  return legal ? std::optional(segment) : std::nullopt;
}

/// The header of the database as the journal keeps it, if it keeps page 1.
std::optional<std::string> header_before(const InputFile& journal) {
  constexpr std::uint64_t kHeaderBytes = 100;
  std::uint64_t at = 0;
  while (const std::optional<Segment> segment = read_segment(journal, at)) {
    const std::uint64_t record = segment->page + 8;  // its number before, a checksum behind
    at += segment->sector;
    if (at > journal.size()) break;
    const std::uint64_t there = (journal.size() - at) / record;
    // A count of 0 or of all bits was not filled in: the records go to the end.
    const bool counted = segment->records != 0 && segment->records <= there;
    const std::uint64_t count = counted ? segment->records : there;
    for (std::uint64_t i = 0; i < count; ++i, at += record) {
      if (integer_at(bytes_at(journal, at, 4), 0) == 1) {
        return bytes_at(journal, at + 4, kHeaderBytes);
      }
    }
    at = (at + segment->sector - 1) / segment->sector * segment->sector;
  }
  return std::nullopt;
}

}  // namespace

bool may_be_journal_of(const std::string& path, std::string_view header) {
  constexpr std::size_t kChanges = 24;  // the file change counter
  constexpr std::size_t kPages = 28;
  const InputFile journal(path);
  const std::optional<Segment> first = read_segment(journal, 0);
  if (!first) return true;
  const std::uint32_t changes = integer_at(header, kChanges);
  if (first->pages_before == 0) return changes <= 1;  // the file's first transaction
  const std::optional<std::string> before = header_before(journal);
  if (!before) return integer_at(header, kPages) == first->pages_before;
  // Page 1 is written with the count that comes next, or has not been written yet.
  return header == *before || changes == integer_at(*before, kChanges) + 1;
}

}  // namespace attune
