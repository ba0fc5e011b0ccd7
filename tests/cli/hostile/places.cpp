#include "places.hpp"

#include <attune/core/error.hpp>
#include <attune/core/this_machine.hpp>

namespace attune::test {
namespace {

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A problem that the sound databases hold a row for.
Words problem(Words verb, const Words& more = {}) {
  return with(with(std::move(verb), {"recurrent_attention", "T=8", "H=1", "D=4"}), more);
}

/// One that they do not.
Words untuned(Words verb, const Words& more = {}) {
  return with(with(std::move(verb), {"recurrent_attention", "T=12", "H=1", "D=4"}), more);
}

const Words kQuick{"--budget", "50ms"};
const Words kTune{"--budget", "50ms", "--warmup", "0", "--iters", "1", "--isolate", "off"};
const Words kPin{"--config", "kernel=reference.recurrent_attention", "--reason", "a test"};

void add_files(std::vector<Place>& places) {
  const auto read = [&](const std::string& name, Use use, const std::string& file, Words words) {
    places.push_back({.name = name, .use = use, .file = file, .arguments = std::move(words)});
    places.back().refused = 2;
  };
  read("run --input", Use::kRead, "in.safetensors",
       {"run", "recurrent_attention", "--input", "THING", "--policy", "heuristic"});
  read("check FILE", Use::kRead, "in.safetensors", {"check", "THING"});
  read("tune @FILE", Use::kReadSpecs, "shapes.jsonl", {"tune", "@THING", "--dry-run"});
  read("explain @FILE", Use::kReadSpecs, "shapes.txt", {"explain", "@THING"});
  read("run @FILE", Use::kReadSpecs, "shapes.txt", {"run", "@THING", "--policy", "heuristic"});
  read("tune -", Use::kReadSpecs, "shapes.txt", {"tune", "-", "--dry-run"});
  places.back().by_standard_input = true;
  read("stats FILE", Use::kRead, "attune.prom", {"stats", "THING"});
  read("--plugin", Use::kRead, "plugin.so", {"ops", "--plugin", "THING"});
  places.back().refused = 3;
  read("ATTUNE_PLUGINS", Use::kRead, "plugin.so", {"ops"});
  places.back().environment = {"ATTUNE_PLUGINS=THING"};
}

void add_outputs(std::vector<Place>& places) {
  const auto output = [&](const std::string& name, const std::string& file, Words words,
                          int refused) {
    places.push_back({.name = name,
                      .use = Use::kReplace,
                      .file = file,
                      .arguments = with(std::move(words), {"--output", "THING"}),
                      .refused = refused});
  };
  const Words all{"db", "export", "INPUTS/rows.db"};
  output("run --output", "out.safetensors", problem({"run"}, {"--policy", "heuristic"}), 5);
  output("db export --output x.db", "out.db", all, 4);
  output("db export --output x.jsonl", "out.jsonl", all, 4);
  output("db export --output x.csv", "out.csv", all, 4);
  output("db export --ship --output", "out.db", with(all, {"--ship", "--min-grade", "C"}), 4);
  output("db merge --output x.db", "out.db", {"db", "merge", "INPUTS/rows.db", "INPUTS/rows.csv"},
         4);
  output("db merge --output x.csv", "out.csv", {"db", "merge", "INPUTS/rows.db"}, 4);
  places.push_back({.name = "db use, to change",
                    .use = Use::kReplace,
                    .file = "site.db",
                    .arguments = {"db", "use", "INPUTS/rows.db", "THING"},
                    .refused = 4});
  output("report --output", "out.html", {"report", "INPUTS/rows.db"}, 5);
  output("man --folder", "attune.1", {}, 5);
  places.back().use = Use::kReplacePage;
  places.back().arguments = {"man", "--folder", "FOLDER"};
}

void add_recordings(std::vector<Place>& places) {
  const Words program = untuned({"run"}, {"--policy", "db"});
  places.push_back({.name = "record --output",
                    .use = Use::kRecord,
                    .file = "shapes.jsonl",
                    .arguments = with({"record", "--output", "THING", "--", "PROGRAM"}, program),
                    .refused = 2});
  places.push_back({.name = "ATTUNE_RECORD",
                    .use = Use::kRecordQuiet,
                    .file = "shapes.jsonl",
                    .arguments = program,
                    .environment = {"ATTUNE_RECORD=THING"}});
}

void add_databases_of_the_user(std::vector<Place>& places) {
  const auto add = [&](const std::string& name, Use use, Words words, int done = 0,
                       int absent = 0) {
    places.push_back({.name = name + " --db",
                      .use = use,
                      .file = "mine.db",
                      .arguments = with(std::move(words), {"--db", "THING"}),
                      .done = done,
                      .refused = 4,
                      .absent = absent});
  };
  add("run --policy db", Use::kReadUser, problem({"run"}, {"--policy", "db"}));
  add("explain", Use::kReadUser, problem({"explain"}));
  add("doctor", Use::kReadUser, {"doctor"});
  add("db path", Use::kReadUser, {"db", "path"});
  add("db ls", Use::kReadUser, {"db", "ls"});
  add("db stats", Use::kReadUser, {"db", "stats"});
  add("db show", Use::kReadUser, problem({"db", "show"}), 0, 1);
  add("db verify", Use::kReadUser, {"db", "verify"});
  add("db export", Use::kReadUser, {"db", "export", "-o", "jsonl"}, 0, 4);
  add("db import --dry-run", Use::kReadUser, {"db", "import", "INPUTS/rows.jsonl", "--dry-run"});
  add("db gc --dry-run", Use::kReadUser, {"db", "gc", "--dry-run"});
  add("db pin, to list,", Use::kReadUser, {"db", "pin"});
  add("db history", Use::kReadUser, {"db", "history"}, 0, 1);
  add("report", Use::kReadUser, {"report"}, 0, 1);
  add("tune --dry-run", Use::kReadUser, untuned({"tune"}, {"--dry-run"}));
  add("tune", Use::kChangeUser, untuned({"tune"}, kTune));
  add("db import", Use::kChangeUser, {"db", "import", "INPUTS/rows.jsonl"});
  add("db gc", Use::kChangeUser, {"db", "gc"});
  add("db pin", Use::kChangeUser, with(untuned({"db", "pin"}), kPin));
  add("db unpin", Use::kChangeUser, untuned({"db", "unpin"}), 1, 1);
}

void add_databases_in_effect(std::vector<Place>& places) {
  const auto add = [&](const std::string& name, Use use, const std::string& file, Words words,
                       const std::string& variable, int refused = 0) {
    places.push_back({.name = name,
                      .use = use,
                      .file = file,
                      .arguments = std::move(words),
                      .environment = {variable},
                      .refused = refused});
  };
  const std::string user = "ATTUNE_DB=THING";
  add("ATTUNE_DB of run", Use::kTuneInto, "mine.db", untuned({"run"}, kQuick), user);
  add("ATTUNE_DB of explain", Use::kInEffect, "mine.db", problem({"explain"}), user);
  add("ATTUNE_DB of db ls", Use::kInEffect, "mine.db", {"db", "ls"}, user);
  add("ATTUNE_DB of db verify", Use::kInEffect, "mine.db", {"db", "verify"}, user, 4);
  for (const std::string value : {"THING", "FOLDER"}) {
    const std::string variable = "ATTUNE_SYSTEM_DB_PATH=" + value;
    add(variable + " of run", Use::kInEffect, "site.db", problem({"run"}, kQuick), variable);
    add(variable + " of explain", Use::kInEffect, "site.db", problem({"explain"}), variable);
    add(variable + " of doctor", Use::kInEffect, "site.db", {"doctor"}, variable, 1);
    add(variable + " of db ls", Use::kInEffect, "site.db", {"db", "ls"}, variable);
    add(variable + " of db verify", Use::kInEffect, "site.db", {"db", "verify"}, variable, 4);
    add(variable + " of report", Use::kInEffect, "site.db", {"report"}, variable, 1);
  }
}

void add_named_databases(std::vector<Place>& places) {
  const auto add = [&](const std::string& name, const std::string& file, Words words,
                       int done = 0) {
    places.push_back({.name = name,
                      .use = Use::kReadNamed,
                      .file = file,
                      .arguments = std::move(words),
                      .done = done,
                      .refused = 4});
  };
  add("db ls FILE", "a.db", {"db", "ls", "THING"});
  add("db stats FILE", "a.db", {"db", "stats", "THING"});
  add("db show KEY FILE", "a.db", {"db", "show", "0123", "THING"}, 1);
  add("db verify FILE", "a.db", {"db", "verify", "THING"});
  add("db verify x.csv", "a.csv", {"db", "verify", "THING"});
  add("db merge FILE", "a.db",
      {"db", "merge", "INPUTS/rows.db", "THING", "--output", "SCRATCH/merged.db"});
  add("db diff FILE", "a.db", {"db", "diff", "THING", "INPUTS/rows.db"});
  add("db diff x.jsonl", "a.jsonl", {"db", "diff", "THING", "INPUTS/rows.db"}, 1);
  add("db export FILE", "a.db", {"db", "export", "THING", "-o", "csv"});
  add("db import FILE", "a.db", {"db", "import", "THING"});
  add("db import x.jsonl", "a.jsonl", {"db", "import", "THING"});
  add("db import x.csv", "a.csv", {"db", "import", "THING"});
  add("db use FILE FILE", "a.db", {"db", "use", "THING", "SCRATCH/used.db"});
  add("db use x.jsonl FILE", "a.jsonl", {"db", "use", "THING", "SCRATCH/used.db"});
  add("report FILE", "a.db", {"report", "THING"});
}

void add_files_beside(std::vector<Place>& places) {
  const auto add = [&](const std::string& name, const std::string& file, Words words) {
    places.push_back({.name = name,
                      .use = Use::kBeside,
                      .file = file,
                      .arguments = std::move(words),
                      .environment = {"ATTUNE_DB=FOLDER/mine.db"}});
  };
  const std::string note = "mine.db.running.1.0";
  const std::string lock = host_lock_name();
  add("a note, run", note, untuned({"run"}, kQuick));
  add("a note, run --policy db", note, problem({"run"}, {"--policy", "db"}));
  add("a note, tune", note, untuned({"tune"}, kTune));
  add("a note, db import", note, {"db", "import", "INPUTS/rows.jsonl"});
  add("a lock, run", lock, untuned({"run"}, kQuick));
  add("a lock, tune", lock, untuned({"tune"}, kTune));
  add("a temporary, report --output", "page.html.1.1.attune-tmp",
      {"report", "INPUTS/rows.db", "--output", "FOLDER/page.html"});
}

}  // namespace

std::string host_lock_name() { return str("attune-cpu_0-", boot_id(), ".lock"); }

const std::vector<Place>& all_places() {
  static const std::vector<Place> all = [] {
    std::vector<Place> places;
    add_files(places);
    add_outputs(places);
    add_recordings(places);
    add_databases_of_the_user(places);
    add_databases_in_effect(places);
    add_named_databases(places);
    add_files_beside(places);
    return places;
  }();
  return all;
}

}  // namespace attune::test
