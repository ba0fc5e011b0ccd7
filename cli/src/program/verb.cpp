#include "program/verb.hpp"

#include "output/text.hpp"

namespace attune::cli {

void Invocation::print(const Document& document) const {
  const std::size_t width = screen.present ? static_cast<std::size_t>(screen.width) : 0;
  out.write(render(document, format, {screen.color, screen.present, width}));
}

void Invocation::print(Table table) const {
  print(Document{{.name = "", .table = std::move(table)}});
}

void Invocation::note(std::string_view text) const {
  if (quiet) return;
  out.flush();  // what the note is about comes first
  write_error("attune: " + printable(text) + '\n');
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all{demo_verb(),   run_verb(),        check_verb(), tune_verb(),
                                     record_verb(), explain_verb(),    bench_verb(), db_verb(),
                                     ops_verb(),    doctor_verb(),     stats_verb(), report_verb(),
                                     env_verb(),    completion_verb(), man_verb()};
  return all;
}

const Verb* find_verb(std::string_view name) {
  static const Verb hidden = worker_verb();
  if (name == hidden.name) return &hidden;
  for (const Verb& verb : verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

}  // namespace attune::cli
