// Databases as text. The first byte of the input chooses JSONL or CSV. What is read at all can be
// written, in either form, and reads back as the same rows.
#include <sstream>
#include <string>

#include <attune/cache/database_text.hpp>
#include <attune/core/error.hpp>

#include "fuzz.hpp"

namespace {

using namespace attune;  // NOLINT(google-build-using-namespace)

DatabaseContent read(const std::string& text, DatabaseFormat format) {
  std::istringstream in(text);
  return read_database_text(in, format, "fuzz");
}

void check_round_trip(const DatabaseContent& content, DatabaseFormat format) {
  std::ostringstream out;
  write_database_text(content, format, out);
  fuzz::expect(read(out.str(), format) == content, "the rows that were written");
}

void import_text(std::string_view input) {
  const auto format = input.front() == 'c' ? DatabaseFormat::kCsv : DatabaseFormat::kJsonl;
  DatabaseContent content = read(std::string(input.substr(1)), format);
  content.sort();
  check_round_trip(content, DatabaseFormat::kJsonl);
  check_round_trip(content, DatabaseFormat::kCsv);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    import_text(fuzz::text_of(data, size));
  } catch (const CacheError&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
