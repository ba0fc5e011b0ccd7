// SQLite under RAII: what the config database needs of it, and no more.
//
// Every failure is a CacheError that names the file. A connection belongs to the process that
// opened it: after fork() each use throws, and the destructor leaves the handle open, since closing
// it would undo what the parent is writing. Nothing here is synchronised.
#pragma once

#include <sqlite3.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <attune/core/error.hpp>

namespace attune::sqlite {

/// How long a call waits for other processes.
inline constexpr std::chrono::milliseconds kBusyTimeout{10'000};

/// A call of SQLite that failed; code() is its extended result code.
class Failure : public CacheError {
 public:
  Failure(const std::string& message, int code) : CacheError(message), code_(code) {}
  int code() const { return code_; }
  int primary_code() const { return code_ & 0xff; }

 private:
  int code_;
};

using Blob = std::span<const std::byte>;

/// An open database, defensively configured: no triggers, views, untrusted functions, memory
/// mapping or large values.
class Db {
 public:
  /// `target` is what sqlite3_open_v2() takes, `path` what messages call it.
  Db(const std::string& target, int flags, std::string path);

  /// A private database in memory.
  static Db in_memory();

  const std::string& path() const { return path_; }
  bool read_only() const;
  /// The file's first 100 bytes, the database header; zeros where it is shorter. They are read as
  /// they lie there: without a lock, and before SQLite acts on them or on a journal.
  std::string header();
  /// All of it, as the bytes of a file.
  std::string image();
  int changes() const;

  /// Throws CacheError in a process other than the one that opened this.
  void check_process() const;

  /// Allows the statements from here on this much processor time, all together; a crafted file
  /// cannot hang its reader.
  void allow_seconds(double seconds);

  /// Runs statements that have no parameters and give no rows.
  void execute(const std::string& sql);
  /// The first column of the only row of `sql`.
  std::int64_t integer(std::string_view sql);

  sqlite3* handle() const;

 private:
  struct Close {
    pid_t owner;
    void operator()(sqlite3* handle) const;
  };
  void configure();

  std::string path_;
  pid_t owner_;
  std::unique_ptr<double> deadline_;  // of this thread's processor time; SQLite holds its address
  std::unique_ptr<sqlite3, Close> handle_;
};

/// A prepared statement. Parameters and columns are numbered as SQLite does: from 1, and from 0.
class Statement {
 public:
  Statement(Db& db, std::string_view sql);

  /// Binds all parameters in order.
  template <class... Values>
  Statement& bind_all(const Values&... values) {
    int index = 0;
    (bind(++index, values), ...);
    return *this;
  }
  void bind(int index, std::int64_t value);
  void bind(int index, double value);
  void bind(int index, std::string_view value);
  void bind(int index, Blob value);

  /// True when there is a row.
  bool step();
  /// Runs to the end, without rows.
  void run();

  int type(int column) const;  // SQLITE_INTEGER, ...
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;

 private:
  void check(int code) const;

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Db& db_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

/// A transaction that is undone unless it is committed. Writers begin immediately: one that reads
/// first and asks to write later fails when two of them meet, whatever the busy timeout.
class Transaction {
 public:
  enum class Kind { kRead, kImmediate };

  Transaction(Db& db, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Db& db_;
  bool open_ = true;
};

}  // namespace attune::sqlite
