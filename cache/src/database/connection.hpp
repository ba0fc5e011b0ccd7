// The open file behind a ConfigDatabase.
#pragma once

#include <mutex>
#include <string>

#include <attune/cache/config_database.hpp>

#include "database/sqlite.hpp"

namespace attune {

struct ConfigDatabase::Connection {
  Connection(std::string file, Mode how);

  /// Held while the connection is used. The process is checked first: a child may have inherited a
  /// locked mutex.
  std::unique_lock<std::mutex> use();
  /// Throws CacheError for a connection that may only read.
  std::unique_lock<std::mutex> use_for_writing();

  const std::string path;
  const Mode mode;
  std::mutex mutex;
  sqlite::Db db;
};

}  // namespace attune
