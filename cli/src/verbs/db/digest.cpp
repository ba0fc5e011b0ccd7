// `attune db digest`: whether two machines decide alike, in one line that a script compares.
#include <attune/cache/decisions_digest.hpp>

#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"

namespace attune::cli {

ExitCode print_digests(const Invocation& call, const CommandContext& command, Words words) {
  Table table({"digest", "decisions", "file"});
  std::string lines;
  for (const std::string& path : files_or_those_in_effect(command, words)) {
    const DatabaseContent content = read_database_file(path);
    note_bad_rows(call, path, content);
    std::vector<ConfigRow> rows;
    for (const StoredDecision& decision : content.decisions) rows.push_back(decision.row);
    const std::string digest = decisions_digest(rows);
    lines += str(digest, "  ", printable(path), '\n');
    table.add({digest, rows.size(), path});
  }
  if (table.empty()) call.note("there is no database yet");
  if (call.for_people()) {
    call.out.write(lines);
  } else {
    call.print(std::move(table));
  }
  return ExitCode::kOk;
}

}  // namespace attune::cli
