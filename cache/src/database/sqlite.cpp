#include "database/sqlite.hpp"

#include <unistd.h>

#include <ctime>
#include <limits>
#include <utility>

namespace attune::sqlite {
namespace {

[[noreturn]] void fail(sqlite3* handle, int code, const std::string& path) {
  std::string reason;
  switch (code & 0xff) {
    case SQLITE_BUSY:
      reason = "locked by another process for more than 10 seconds";
      break;
    case SQLITE_NOTADB:
      reason = "not a SQLite database";
      break;
    case SQLITE_CORRUPT:
      reason = "damaged";
      break;
    case SQLITE_INTERRUPT:
      reason = "reading it takes too long";
      break;
    default:
      reason = handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
  }
  if (code == SQLITE_READONLY_ROLLBACK) {
    reason =
        "a writer was interrupted; open it for writing once, to undo what that one had begun "
        "('attune db ls --db FILE')";
  }
  throw Failure(str("config database ", path, ": ", reason, " (SQLite code ", code, ")"), code);
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int past_deadline(void* deadline) {
  return processor_seconds() > *static_cast<const double*>(deadline) ? 1 : 0;
}

}  // namespace

void Db::Close::operator()(sqlite3* handle) const {
  if (getpid() == owner) sqlite3_close_v2(handle);
}

Db::Db(const std::string& target, int flags, std::string path)
    : path_(std::move(path)),
      owner_(getpid()),
      deadline_(std::make_unique<double>(std::numeric_limits<double>::infinity())),
      handle_(nullptr, Close{owner_}) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(target.c_str(), &opened,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  handle_.reset(opened);  // also when it failed: the handle then holds the message
  if (code != SQLITE_OK) fail(opened, code, path_);
  configure();
}

Db Db::in_memory() {
  return {":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "(in memory)"};
}

void Db::configure() {
  constexpr std::pair<int, int> kOptions[] = {
      {SQLITE_DBCONFIG_DEFENSIVE, 1},      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
      {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
      {SQLITE_DBCONFIG_DQS_DML, 0},        {SQLITE_DBCONFIG_DQS_DDL, 0},
  };
  for (const auto& [option, value] : kOptions) {
    const int code = sqlite3_db_config(handle(), option, value, nullptr);
    if (code != SQLITE_OK) fail(handle(), code, path_);
  }
  constexpr std::pair<int, int> kLimits[] = {
      {SQLITE_LIMIT_LENGTH, 1 << 20},    {SQLITE_LIMIT_SQL_LENGTH, 1 << 16},
      {SQLITE_LIMIT_COLUMN, 64},         {SQLITE_LIMIT_EXPR_DEPTH, 50},
      {SQLITE_LIMIT_COMPOUND_SELECT, 4}, {SQLITE_LIMIT_VDBE_OP, 25000},
      {SQLITE_LIMIT_ATTACHED, 0},        {SQLITE_LIMIT_WORKER_THREADS, 0},
  };
  for (const auto& [limit, value] : kLimits) sqlite3_limit(handle(), limit, value);
  sqlite3_busy_timeout(handle(), static_cast<int>(kBusyTimeout.count()));
  sqlite3_progress_handler(handle(), 10000, past_deadline, deadline_.get());
  execute("PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;");
}

sqlite3* Db::handle() const { return handle_.get(); }
bool Db::read_only() const { return sqlite3_db_readonly(handle(), "main") != 0; }

std::string Db::header() {
  check_process();
  constexpr int kBytes = 100;
  std::string bytes(kBytes, '\0');
  sqlite3_file* file = nullptr;
  int code = sqlite3_file_control(handle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (code == SQLITE_OK) code = file->pMethods->xRead(file, bytes.data(), kBytes, 0);
  if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ) fail(nullptr, code, path_);
  return bytes;
}

std::string Db::image() {
  check_process();
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> bytes(
      sqlite3_serialize(handle(), "main", &size, 0), sqlite3_free);
  if (bytes == nullptr) fail(nullptr, SQLITE_NOMEM, path_);
  return {reinterpret_cast<const char*>(bytes.get()), static_cast<std::size_t>(size)};
}

int Db::changes() const { return sqlite3_changes(handle()); }

void Db::check_process() const {
  if (getpid() == owner_) return;
  throw CacheError(str("config database ", path_, ": opened by process ", owner_,
                       " and used after fork() by ", getpid(), "; open it again here"));
}

void Db::allow_seconds(double seconds) { *deadline_ = processor_seconds() + seconds; }

void Db::execute(const std::string& sql) {
  check_process();
  const int code = sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(handle(), code, path_);
}

std::int64_t Db::integer(std::string_view sql) {
  Statement statement(*this, sql);
  if (!statement.step()) throw CacheError(str("config database ", path_, ": no answer to ", sql));
  return statement.integer(0);
}

Statement::Statement(Db& db, std::string_view sql) : db_(db) {
  db.check_process();
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db.handle(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  handle_.reset(statement);
  check(code);
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) fail(db_.handle(), code, db_.path());
}

void Statement::bind(int index, std::int64_t value) {
  check(sqlite3_bind_int64(handle_.get(), index, value));
}

void Statement::bind(int index, double value) {
  check(sqlite3_bind_double(handle_.get(), index, value));
}

// An empty view may have a null pointer, which SQLite would store as NULL.
void Statement::bind(int index, std::string_view value) {
  check(sqlite3_bind_text64(handle_.get(), index, value.empty() ? "" : value.data(), value.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind(int index, Blob value) {
  check(sqlite3_bind_blob64(handle_.get(), index,
                            value.empty() ? "" : static_cast<const void*>(value.data()),
                            value.size(), SQLITE_TRANSIENT));
}

bool Statement::step() {
  db_.check_process();
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(db_.handle(), code, db_.path());
  return false;
}

void Statement::run() {
  while (step()) {
  }
}

int Statement::type(int column) const { return sqlite3_column_type(handle_.get(), column); }

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(handle_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = sqlite3_column_text(handle_.get(), column);
  if (text == nullptr) return {};
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return {reinterpret_cast<const char*>(text), size};  // unsigned char as char
}

std::string Statement::blob(int column) const {
  const void* blob = sqlite3_column_blob(handle_.get(), column);
  if (blob == nullptr) return {};
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return {static_cast<const char*>(blob), size};
}

Transaction::Transaction(Db& db, Kind kind) : db_(db) {
  db.execute(kind == Kind::kImmediate ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  // A failed commit may have ended it already; an error here has no one to go to, and the file is
  // safe either way.
  if (open_ && sqlite3_get_autocommit(db_.handle()) == 0) {
    sqlite3_exec(db_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  db_.execute("COMMIT");
  open_ = false;
}

}  // namespace attune::sqlite
