// Which database a rollback journal belongs to. The journal does not say: SQLite takes whatever
// lies at "<file>-journal" for the file's own, as after an `mv` of the file, and overwrites the
// file's pages with what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// The integer at a place of one of SQLite's files, which are big-endian.
std::uint32_t integer_at(std::string_view bytes, std::size_t at);

/// Whether undoing what the journal holds could give back an earlier state of the file that begins
/// with `header`, 100 bytes (sqlite.org/fileformat2.html, 1.3 and 3). SQLite counts the changes of
/// a file in its header, of which the journal keeps a copy when page 1 was to be written, as it is
/// at the end of each transaction; before that the size from before is still the file's.
///
/// True as well for what is no journal, which SQLite does not use, and for one of another file
/// that happened to be at the same count. The caller sees to it that nobody writes the journal
/// meanwhile. Throws FileError when it cannot be read.
bool may_be_journal_of(const std::string& journal, std::string_view header);

}  // namespace attune
