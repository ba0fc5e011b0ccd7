// What lies beside a database under a note's name. The input is the file; when it begins with 'd',
// what follows that is the file below the lines that name a process, which are those of one that
// has ended. Nothing is thrown, only rows that a database takes are blamed, and what neither blames
// anybody nor says that nothing ran is left where it is.
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <attune/cache/database_text.hpp>
#include <attune/cache/suspect_note.hpp>
#include <attune/core/log.hpp>

#include "fuzz.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace attune;  // NOLINT(google-build-using-namespace)

/// The lines of a note up to the candidate, of a process of this number that started earlier.
std::string lines_of_the_dead(const test::TemporaryFolder& folder) {
  const SuspectNote note(folder.file("living.db"), AtRisk::kProcess);
  const std::filesystem::directory_entry found =
      *std::filesystem::directory_iterator(folder.path());
  std::ifstream file(found.path());
  std::string lines;
  std::string line;
  for (int i = 0; i < 6 && std::getline(file, line); ++i) lines += (i == 2 ? "1" : line) + '\n';
  return lines;
}

bool can_be_stored(const QuarantineRow& row) {
  DatabaseContent content;
  content.quarantine.push_back(row);
  std::ostringstream out;
  write_database_text(content, DatabaseFormat::kJsonl, out);
  std::istringstream in(out.str());
  return read_database_text(in, DatabaseFormat::kJsonl, "fuzz") == content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_level(LogLevel::kOff);
  static const test::TemporaryFolder folder;
  static const std::string dead = lines_of_the_dead(folder);
  const std::string_view input = fuzz::text_of(data, size);
  const bool of_the_dead = input.starts_with('d');
  const std::string database = folder.file("user.db");
  const std::string note = database + ".running.1.0";
  const std::string text =
      (of_the_dead ? dead : "") + std::string(input.substr(of_the_dead ? 1 : 0));
  std::ofstream(note, std::ios::binary | std::ios::trunc) << text;
  int blamed = 0;
  take_suspects(database, [&](const QuarantineRow& row) {
    fuzz::expect(can_be_stored(row), "a row that a database takes");
    ++blamed;
  });
  fuzz::expect(blamed <= 1, "one candidate of one note");
  const bool is_gone = !std::filesystem::exists(note);
  const bool says_nothing_ran = text.find("\n\n\n\n0\n\n\n") != std::string::npos;
  fuzz::expect(blamed == 0 || is_gone, "a note that blamed somebody is gone");
  fuzz::expect(blamed == 1 || !is_gone || says_nothing_ran, "what is no note is left");
  return 0;
}
