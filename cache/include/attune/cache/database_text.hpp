// Config databases as text: for people, for review, for other programs. Nothing is lost either way.
//
// One row a line: the name of its table and the columns of docs/cache_format.md, without the key's
// hash and the checksum, which are computed anew. Trials repeat the key of their decision.
//
//   JSONL   {"table":"decision","op":"recurrent_attention","device_class":"cpu:...",...}
//   CSV     RFC 4180; the first line names the columns of all tables, and a row leaves those empty
//           that its table has not
//
// Times are whole picoseconds, other numbers as short as reads back the same bits; an infinite
// error is "inf". Rows stand in the order of their keys, each decision before its trials, so that
// equal contents give equal texts.
#pragma once

#include <iosfwd>
#include <string>

#include <attune/cache/database_content.hpp>

namespace attune {

enum class DatabaseFormat { kDatabase, kJsonl, kCsv };

/// By a file's name: ".jsonl", ".csv"; everything else is a database.
DatabaseFormat database_format_of(const std::string& path);

/// `content`, which is sorted, as JSONL or CSV.
void write_database_text(const DatabaseContent& content, DatabaseFormat format, std::ostream& out);

/// The reverse. Empty lines are skipped, and in JSONL lines that begin with '#'. Throws CacheError,
/// as "source:line: column: what", for the first line that is not a row, has a value that may not
/// be stored, is a trial without its decision, or repeats a key. Lines are at most 256 KiB, texts
/// 256 MiB.
DatabaseContent read_database_text(std::istream& in, DatabaseFormat format,
                                   const std::string& source);

/// Reads a file of any format. Throws CacheError; nothing is written, not even a journal.
DatabaseContent read_database_file(const std::string& path);

/// Makes the file hold `content`, in the format of its name, and nothing else. Readers find the old
/// content or the new one, nothing between: a database is changed by a transaction in it; other
/// files, and databases that nobody may write, are replaced (core/output_file.hpp). `read_only`
/// databases get the mode 0444. Throws CacheError, and changes nothing, when a file that is not
/// attune's has the name; InvalidArgument for a value that may not be stored.
void write_database_file(const std::string& path, DatabaseContent content, bool read_only = false);

}  // namespace attune
