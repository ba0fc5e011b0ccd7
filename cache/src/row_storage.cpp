#include "row_storage.hpp"

namespace attune {

std::string hash_of(const RowKey& key) {
  visit_key(key, [](const Column& column, const std::string& value) {
    const std::string problem = violation(column, value);
    if (!problem.empty()) throw InvalidArgument(str("key: ", problem));
  });
  return key_hash(canonical_text(key));
}

bool is_damage(const sqlite::Failure& failure) {
  const int code = failure.primary_code();
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_TOOBIG ||
         code == SQLITE_IOERR;
}

}  // namespace attune
