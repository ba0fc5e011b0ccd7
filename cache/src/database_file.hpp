// Finding out what a path is, and opening it as a database.
//
// A path is only ever looked at, never opened, except by SQLite: closing a descriptor of a file
// drops every lock that this process holds on it, SQLite's among them.
#pragma once

#include <string>

#include "sqlite.hpp"

namespace attune {

/// Opens a file for writing; makes it (mode 0600) and its folders (0700) when they are not there.
/// Throws CacheError.
sqlite::Db open_for_writing(const std::string& path);

/// Opens a file for reading; neither it nor a journal is ever written. Throws CacheError.
sqlite::Db open_for_reading(const std::string& path);

}  // namespace attune
