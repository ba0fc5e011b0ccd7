// `attune db`: what the config databases hold, and whether they are sound.
#include <algorithm>
#include <filesystem>

#include <attune/core/params.hpp>

#include "session.hpp"
#include "stored_rows.hpp"
#include "text.hpp"
#include "verb.hpp"

namespace attune::cli {

// In db_show.cpp.
ExitCode show_rows(const Invocation& call, const Session& session,
                   std::span<const std::string> words);

namespace {

ExitCode print_path(const Invocation& call, const Session& session,
                    std::span<const std::string> words) {
  if (!words.empty()) throw UsageError(str("path: '", words[0], "': expected nothing more"));
  const std::string& path = session.chain().store().settings().user_path;
  if (call.for_people()) {
    call.out.write(printable(path) + '\n');
  } else {
    call.print(Table({"path", "exists"}).add({path, std::filesystem::exists(path)}));
  }
  return ExitCode::kOk;
}

ExitCode list_rows(const Invocation& call, const Session& session,
                   std::span<const std::string> words) {
  const StoredRows stored = stored_rows(session, words);
  Table table({"key", "op", "problem", "device_class", "platform", "kernel", "config", "median_us",
               "speedup", "noise", "layer", "age"});
  constexpr std::size_t kClassWidth = 24;
  for (const auto& [layer, path, row] : stored.rows) {
    const std::string& device = row.key.device_class;
    table.add({key_id(row.key), row.key.op, problem_text_of(session, row.key),
               call.for_people() && !call.verbose ? shorten(device, kClassWidth) : device,
               row.key.platform, row.kernel, config_or_default(row.config), row.median_us,
               row.default_us / row.median_us, to_string(row.noise), to_string(layer),
               age_text(row.created)});
  }
  call.print(std::move(table));
  if (stored.rows.empty())
    call.note("no decisions stored yet: 'attune tune' or a first call makes them");
  if (stored.bad_rows > 0)
    call.note(str(stored.bad_rows, " damaged rows left out; 'attune db verify' lists them"));
  return ExitCode::kOk;
}

std::vector<std::string> files_to_verify(const Session& session,
                                         std::span<const std::string> words) {
  std::vector<std::string> files(words.begin(), words.end());
  if (!files.empty()) return files;
  for (const ConfigStore::FileStatus& file : session.chain().store().status()) {
    if (std::filesystem::exists(file.path)) files.push_back(file.path);
  }
  return files;
}

Verification verify_file(const std::string& path) {
  try {
    return ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).verify();
  } catch (const CacheError& error) {
    Verification verification;
    verification.error = error.what();
    return verification;
  }
}

ExitCode verify_files(const Invocation& call, const Session& session,
                      std::span<const std::string> words) {
  Table table({"file", "result", "rows", "bad_rows", "schema", "detail"});
  bool damaged = false;
  bool unreadable = false;
  for (const std::string& path : files_to_verify(session, words)) {
    const Verification found = verify_file(path);
    unreadable = unreadable || !found.readable;
    damaged = damaged || (found.readable && !found.ok());
    if (!found.readable) {
      table.add({path, Cell("unreadable", Tone::kBad), Cell(), Cell(), Cell(), found.error});
      continue;
    }
    const Cell result = found.ok() ? Cell("ok", Tone::kGood) : Cell("damaged", Tone::kBad);
    table.add({path, result, found.rows, found.bad_rows, found.schema_version,
               found.ok() ? Cell() : Cell(join(found.problems, "; "))});
  }
  if (table.empty()) call.note("there is no database yet");
  call.print(std::move(table));
  if (unreadable) return ExitCode::kDatabase;
  return damaged ? ExitCode::kNo : ExitCode::kOk;
}

struct Subverb {
  std::string_view name;
  ExitCode (*run)(const Invocation& call, const Session& session,
                  std::span<const std::string> words);
};
constexpr Subverb kSubverbs[] = {
    {"path", print_path}, {"ls", list_rows}, {"show", show_rows}, {"verify", verify_files}};

ExitCode run(const Invocation& call) {
  std::vector<std::string> names;
  for (const Subverb& verb : kSubverbs) names.emplace_back(verb.name);
  if (call.words.empty()) throw UsageError("expected one of " + join(names, ", "));
  for (const Subverb& verb : kSubverbs) {
    if (verb.name != call.words[0]) continue;
    const Session session(call, {});
    return verb.run(call, session, std::span(call.words).subspan(1));
  }
  throw UsageError(str("no '", call.words[0], "': expected one of ", join(names, ", "),
                       did_you_mean(call.words[0], names)));
}

}  // namespace

Verb db_verb() {
  return {.name = "db",
          .summary = "list, show and verify what is stored",
          .usage = {"db path", "db ls [FILE...]", "db show KEY [FILE...]", "db show OP SPEC...",
                    "db verify [FILE...]"},
          .examples = {"db ls", "db show 3fa9", "db show recurrent_attention T=512 H=8 D=64",
                       "db verify h200.db -o json"},
          .details =
              "Without a FILE: the databases in effect, which are the user's, the site's and the "
              "shipped ones.\n"
              "path prints where the user's database is. ls lists the decisions; show prints one "
              "with all that "
              "was measured for it, by the beginning of its KEY or by its problem. verify reads "
              "every row and "
              "checks it: exit status 1 when something is damaged, 4 when a file cannot be read.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
