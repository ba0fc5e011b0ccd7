// `attune db`: what the config databases hold, and whether they are sound.
#include <algorithm>

#include <attune/core/params.hpp>

#include "output/text.hpp"
#include "program/verb.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {

namespace {

ExitCode print_path(const Invocation& call, const CommandContext& command, Words words) {
  if (!words.empty()) throw UsageError(str("path: '", words[0], "': expected nothing more"));
  const std::string& path = user_database(command);
  if (call.for_people()) {
    call.out.write(printable(path) + '\n');
  } else {
    call.print(Table({"path", "exists"}).add({path, is_there(path)}));
  }
  return ExitCode::kOk;
}

ExitCode list_rows(const Invocation& call, const CommandContext& command, Words words) {
  const StoredRows stored = stored_rows(command, words);
  Table table({"key", "op", "problem", "device_class", "platform", "kernel", "config", "median_us",
               "speedup", "noise", "layer", "age"});
  constexpr std::size_t kClassWidth = 24;
  for (const auto& [layer, path, row] : stored.rows) {
    const std::string& device = row.key.device_class;
    table.add({key_id(row.key), row.key.op, problem_text_of(command, row.key),
               call.for_people() && !call.verbose ? shorten(device, kClassWidth) : device,
               row.key.platform, row.kernel, config_or_default(row.config),
               microseconds(row.key, row.median_us), row.default_us / row.median_us,
               to_string(row.noise), to_string(layer), age_text(row.created)});
  }
  call.print(std::move(table));
  if (stored.rows.empty())
    call.note("no decisions stored yet: 'attune tune' or a first call makes them");
  if (stored.bad_rows > 0)
    call.note(str(count_text(stored.bad_rows, "damaged row"),
                  " left out; 'attune db verify' lists ", stored.bad_rows == 1 ? "it" : "them"));
  return ExitCode::kOk;
}

struct Subverb {
  std::string_view name;
  ExitCode (*run)(const Invocation& call, const CommandContext& command, Words words);
  bool writes = false;  // the user's database, unless --dry-run
};
constexpr Subverb kSubverbs[] = {
    {"path", print_path},          {"ls", list_rows},           {"show", show_rows},
    {"stats", print_stats},        {"verify", verify_files},    {"merge", merge_files},
    {"diff", diff_files},          {"export", export_rows},     {"import", import_files, true},
    {"gc", collect_garbage, true}, {"pin", pin_problems, true}, {"unpin", unpin_problems, true},
    {"history", print_history},    {"use", use_content},        {"digest", print_digests}};

ExitCode run(const Invocation& call) {
  std::vector<std::string> names;
  for (const Subverb& verb : kSubverbs) names.emplace_back(verb.name);
  if (call.words.empty()) throw UsageError("expected one of " + join(names, ", "));
  for (const Subverb& verb : kSubverbs) {
    if (verb.name != call.words[0]) continue;
    const bool lists = call.words.size() == 1 && verb.name == "pin";
    const bool writes = verb.writes && !lists && !call.options.flag("dry-run");
    const CommandContext command(call, {.writes_database = writes});
    return verb.run(call, command, std::span(call.words).subspan(1));
  }
  throw UsageError(str("no '", call.words[0], "': expected one of ", join(names, ", "),
                       did_you_mean(call.words[0], names)));
}

}  // namespace

std::vector<std::string> files_or_those_in_effect(const CommandContext& command, Words words) {
  std::vector<std::string> files(words.begin(), words.end());
  if (!files.empty()) return files;
  for (const ConfigStore::FileStatus& file : command.chain().store().status()) {
    if (is_there(file.path)) files.push_back(file.path);
  }
  return files;
}

Verb db_verb() {
  return {
      .name = "db",
      .summary = "config databases: list, check, merge, export, ship",
      .usage = {"db path", "db ls|stats [FILE...]", "db show KEY [FILE...]", "db show OP SPEC...",
                "db verify [FILE...] [--strict] [--relaunch]",
                "db verify --covers @SPECS FILE... [--shards N] [--device-class CLASS]...",
                "db digest [FILE...]", "db merge FILE... --output FILE", "db diff FILE FILE",
                "db export [FILE...] [--output FILE] [--ship [--min-grade A|B|C] [--pins]]",
                "db import FILE... [--on-conflict best|ours|theirs] [--dry-run]",
                "db gc [--older-than TIME] [--stale] [--unknown] [--trials] [--dry-run]",
                "db pin [OP SPEC... --config kernel=NAME,... --reason TEXT [--expires TIME]]",
                "db unpin OP SPEC...|KEY", "db history [FILE]",
                "db use GENERATION|FILE [FILE] [--keep N]"},
      .examples = {"db ls", "db show recurrent_attention T=512 H=8 D=64",
                   "db verify --covers @shapes.jsonl --shards 16 all.db",
                   "db export --ship --output h200.db", "db export -o jsonl > mine.jsonl",
                   "db merge a.db b.jsonl --output all.db",
                   "db pin recurrent_attention T=512 H=8 D=64 --config "
                   "kernel=reference.recurrent_attention --reason 'issue 12' --expires 72h",
                   "db use next.db /srv/attune/site.db", "db history /srv/attune/site.db",
                   "db use 3 /srv/attune/site.db"},
      .details =
          "Without a FILE: the databases in effect, which are the user's, the site's and the "
          "shipped ones; gc, import, pin and unpin change the user's (--db), export takes it. "
          "Files are databases, or their text by the names *.jsonl and *.csv; what is read is "
          "never written.\n"
          "merge keeps of two rows for one problem the one that is more times as fast as the "
          "default was in its own session, never comparing times of two sessions; rows measured "
          "in noise or by an older attune come second, stale ones last. export --ship writes a "
          "read-only database of those rows that were measured in quiet and are valid for their "
          "kernels as they are now, without trials, and without pins unless --pins.\n"
          "verify checks structure, checksums, and that each config is valid for its kernel on "
          "its class of devices, here or not: exit status 1 when one is not, 4 when a file "
          "cannot be read. --strict: stale rows and those of kernels that are not loaded count "
          "too. --relaunch runs each row that is for a device here, against the oracle and the "
          "kernel's default.\n"
          "verify --covers says whether the FILEs together have a row of this version for each problem of "
          "a list: exit status 1 when one is missing, and a line for each. A problem that was recorded "
          "needs one for its class of devices, others for each class that the FILEs have rows of, or "
          "for each --device-class; rows of the site's and shipped databases count, and a FILE that "
          "cannot be used has none. --shards: which "
          "part of 'attune tune --shard' each belongs to.\n"
          "digest prints 128 bits over what each FILE decides, whatever was measured: machines with "
          "equal digests choose alike.\n"
          "gc removes what can never be used: damaged and invalid rows, expired pins, "
          "quarantined candidates of older kernels. Stale rows are kept unless --stale, those of "
          "kernels that are not loaded unless --unknown.\n"
          "pin holds a problem to a config above everything measured, until --expires.\n"
          "use puts the content of another file, or one that the database held before, in the place "
          "of what it holds; programs that run with ATTUNE_RELOAD_SECONDS take it up. Each content is "
          "kept as a generation in FILE.history, the newest 16 of them, and history lists them. merge "
          "and export onto a database with a history keep theirs there as well.\n"
          "stats says of many files which classes of devices they serve, and how many of all problems "
          "each class has a row for.",
      .options = {{"output", '\0', "FILE", "what is made: a database, *.jsonl or *.csv", false},
                  {"ship", '\0', "", "export: only rows worth shipping, read-only", false},
                  {"pins", '\0', "", "--ship: with the pins that hold", false},
                  {"keep", '\0', "N", "use: how many generations are kept; default 16", false},
                  {"min-grade", '\0', "G", "--ship: worst grade of noise, A, B (default) or C",
                   false},
                  {"on-conflict", '\0', "WHO", "import: best (default), ours or theirs", false},
                  {"dry-run", '\0', "", "import, gc: say what would be done", false},
                  {"strict", '\0', "", "verify: stale and unknown rows count as bad", false},
                  {"relaunch", '\0', "", "verify: run the rows' configs on their device", false},
                  {"covers", '\0', "@SPECS", "verify: the list that is to be there, whole", false},
                  {"shards", '\0', "N", "verify --covers: number of parts of the list", false},
                  {"device-class", '\0', "CLASS",
                   "verify --covers: a class that unrecorded problems need rows for", true},
                  {"older-than", '\0', "TIME", "gc: rows measured before that, too", false},
                  {"stale", '\0', "", "gc: rows of other kernel versions, too", false},
                  {"unknown", '\0', "", "gc: rows of kernels that are not loaded, too", false},
                  {"trials", '\0', "", "gc: the candidates behind each decision", false},
                  {"reason", '\0', "TEXT", "pin: why", false},
                  {"expires", '\0', "TIME", "pin: how long it holds: 12h, 720h; default ever",
                   false}},
      .run = run};
}

}  // namespace attune::cli
