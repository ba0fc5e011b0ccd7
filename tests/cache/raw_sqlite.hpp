// SQLite without any of attune's care, to make files that attune must not trust.
#pragma once

#include <sqlite3.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace attune::test {

/// Runs the statements and then `before_closing`.
inline void raw_sql(
    const std::string& path, const std::string& sql,
    const std::function<void()>& before_closing = [] {}) {
  sqlite3* db = nullptr;
  int code = sqlite3_open(path.c_str(), &db);
  if (code == SQLITE_OK) code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  const std::string message = code == SQLITE_OK ? "" : sqlite3_errmsg(db);
  before_closing();
  sqlite3_close(db);
  if (code != SQLITE_OK) throw std::runtime_error(sql + ": " + message);
}

}  // namespace attune::test
