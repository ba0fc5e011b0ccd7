// The tables of a config database, and how a file gets from one version of them to the next.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "database/sqlite.hpp"

namespace attune {

/// SQL that takes a file from version i to i + 1, where i is its place in the list. Version 0 is an
/// empty file.
using Migration = const char*;

/// attune's own: as many as ConfigDatabase::kSchemaVersion.
std::span<const Migration> migrations();

/// Brings an empty file, or one of an older version, to the last version of `steps`, in one
/// transaction; a file that is there already is left alone. Throws CacheError for a file that is
/// not attune's, or newer, or whose tables are not exactly those that the steps make.
void prepare_for_writing(sqlite::Db& db, std::span<const Migration> steps = migrations());

/// Throws CacheError unless the file holds exactly the tables that the steps make, or is newer and
/// says that this version can read it.
void check_for_reading(sqlite::Db& db, std::span<const Migration> steps = migrations());

}  // namespace attune
