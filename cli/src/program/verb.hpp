// Verbs: what `attune VERB` does. One table of them drives the command line, help and the
// suggestions after a typo.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "output/table.hpp"
#include "output/terminal.hpp"
#include "program/exit_code.hpp"
#include "program/options.hpp"

namespace attune {
class Registry;
}

namespace attune::cli {

struct Verb;

/// Adds the ops, kernels and devices that the program has without plugins.
using RegisterOps = void (*)(Registry& registry);

/// One call of the program: a verb with its words and options, and where results and notes go.
struct Invocation {
  const Verb& verb;
  RegisterOps register_ops;  // null: it has none
  Options options;
  std::vector<std::string> words;  // after the verb
  Output& out;                     // data, and nothing else
  Terminal screen;                 // what `out` is
  Format format = Format::kTable;
  bool quiet = false;
  bool verbose = false;

  void print(const Document& document) const;
  void print(Table table) const;
  /// Data for people where the format is a table, `document` for programs otherwise.
  bool for_people() const { return format == Format::kTable; }
  /// A line on standard error, unless --quiet.
  void note(std::string_view text) const;
};

struct Verb {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> usage;     // without "attune "
  std::vector<std::string_view> examples;  // without "attune "
  std::string_view details;                // paragraphs, or ""
  std::vector<OptionInfo> options;         // its own, besides the global ones
  ExitCode (*run)(const Invocation&);
};

/// All verbs that are for people, in the order of help.
const std::vector<Verb>& verbs();
/// Finds the hidden one as well.
const Verb* find_verb(std::string_view name);

// Each stands in a file of its own.
Verb run_verb();
Verb check_verb();
Verb record_verb();
Verb tune_verb();
Verb explain_verb();
Verb bench_verb();
Verb ops_verb();
Verb db_verb();
Verb doctor_verb();
Verb stats_verb();
Verb demo_verb();
Verb report_verb();
Verb env_verb();
Verb completion_verb();
Verb man_verb();
Verb worker_verb();  // hidden

}  // namespace attune::cli
