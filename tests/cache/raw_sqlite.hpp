// SQLite without any of attune's care, to make files that attune must not trust.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
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

/// What a statement answers, which is one number.
inline std::int64_t raw_integer(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  sqlite3_stmt* statement = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr);
  const bool answered = sqlite3_step(statement) == SQLITE_ROW;
  const std::int64_t answer = answered ? sqlite3_column_int64(statement, 0) : 0;
  sqlite3_finalize(statement);
  sqlite3_close(db);
  if (!answered) throw std::runtime_error(sql + ": no answer");
  return answer;
}

/// Puts at `journal` what a copy of `path` has for a journal after the statements, which begin a
/// transaction and do not end it.
inline void keep_journal(const std::string& path, const std::string& sql,
                         const std::string& journal) {
  const std::string copy = path + ".copy";
  std::filesystem::copy_file(path, copy);
  raw_sql(copy, sql, [&] { std::filesystem::copy_file(copy + "-journal", journal); });
  std::filesystem::remove(copy);
}

}  // namespace attune::test
