// Damaged databases. The input is a list of edits of a good one, five bytes each: a place (four
// bytes, little endian, modulo the file's size) and what its byte is exclusive-ored with. Whatever
// was hit, only rows that were stored come back.
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <attune/cache/config_database.hpp>
#include <attune/core/log.hpp>

#include "cache/sample_rows.hpp"
#include "fuzz.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace attune;  // NOLINT(google-build-using-namespace)

constexpr int kRows = 12;

struct Stored {
  std::string bytes;
  std::set<std::string> rows, pins, quarantine;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Stored make_database(const std::string& path) {
  {
    ConfigDatabase database(path, ConfigDatabase::Mode::kReadWrite);
    for (int i = 0; i < kRows; ++i) {
      const std::vector<TrialRow> trials{test::sample_trial(i), test::sample_trial(i + 1)};
      database.put(test::sample_row(i), trials);
    }
    database.pin(test::sample_pin(1));
    database.quarantine(test::sample_quarantine(2));
  }
  const ConfigSnapshot snapshot = ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).read();
  return {read_file(path), test::texts_of(snapshot.rows), test::texts_of(snapshot.pins),
          test::texts_of(snapshot.quarantine)};
}

/// The folder is removed when the program ends.
const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder kept;
  return kept;
}

const Stored& stored() {
  static const Stored kept = make_database(folder().file("good.db"));
  return kept;
}

std::string edited(std::string bytes, const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kEdit = 5;
  for (std::size_t i = 0; i + kEdit <= size; i += kEdit) {
    std::size_t place = 0;
    for (std::size_t byte = 0; byte < kEdit - 1; ++byte)
      place |= static_cast<std::size_t>(data[i + byte]) << (8 * byte);
    char& hit = bytes[place % bytes.size()];
    hit = static_cast<char>(static_cast<unsigned char>(hit) ^ data[i + kEdit - 1]);
  }
  return bytes;
}

template <class Row>
void expect_known(const std::vector<Row>& rows, const std::set<std::string>& known) {
  for (const Row& row : rows) fuzz::expect(known.contains(test::text_of(row)), "a stored row");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::kOff);
  const Stored& good = stored();
  const std::string path = folder().file("edited.db");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << edited(good.bytes, data, size);
  try {
    const ConfigDatabase database(path, ConfigDatabase::Mode::kReadOnly);
    const ConfigSnapshot snapshot = database.read();
    expect_known(snapshot.rows, good.rows);
    expect_known(snapshot.pins, good.pins);
    expect_known(snapshot.quarantine, good.quarantine);
    const Verification verification = database.verify();
    if (verification.ok())
      fuzz::expect(snapshot.rows.size() == kRows, "all rows of a database that verifies");
  } catch (const CacheError&) {
    return 0;  // the file cannot be used, and says so
  }
  return 0;
}
