// Finding out what a path is, and opening it as a database.
//
// Nothing but SQLite opens a database: closing any descriptor of a file drops all locks that this
// process holds on it, SQLite's among them. And SQLite trusts whatever lies beside a file under the
// names of its journals, and writes there even when it only reads: so the file's header and these
// names are examined before SQLite may act on them.
#pragma once

#include <string>

#include "database/sqlite.hpp"

namespace attune {

/// Opens a file for writing; makes it (mode 0600) and its folders (0700) when they are not there.
/// What an interrupted writer had begun is undone. Throws CacheError.
sqlite::Db open_for_writing(const std::string& path);

/// Gives the file a rollback journal, whatever another program has given it. Throws CacheError,
/// when others use it, after waiting for them.
void use_rollback_journal(sqlite::Db& db);

/// Opens a file for reading; neither it nor anything beside it is ever written. Throws CacheError,
/// also when a writer was interrupted or has left changes in a write-ahead log.
sqlite::Db open_for_reading(const std::string& path);

/// Undoes what an interrupted writer had begun, if there is such a thing and the file may be
/// written; otherwise nothing is done, and open_for_reading() says why.
void recover(const std::string& path);

}  // namespace attune
