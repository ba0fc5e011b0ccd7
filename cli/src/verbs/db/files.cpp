// `attune db merge`, `diff`, `import`: whole databases, in any format.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "output/outputs.hpp"
#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

const StoredDecision* find(const DatabaseContent& content, const RowKey& key) {
  const auto found = std::lower_bound(
      content.decisions.begin(), content.decisions.end(), key,
      [](const StoredDecision& decision, const RowKey& k) { return decision.row.key < k; });
  const bool there = found != content.decisions.end() && found->row.key == key;
  return there ? &*found : nullptr;
}

DatabaseContent read_with_warnings(const Invocation& call, const std::string& path) {
  DatabaseContent content = read_database_file(path);
  note_bad_rows(call, path, content);
  return content;
}

/// One line of a diff.
void add_difference(const CommandContext& command, const RowKey& key, std::string_view change,
                    const StoredDecision* a, const StoredDecision* b, Table& table) {
  const auto choice = [](const StoredDecision* d) {
    return d == nullptr ? Cell() : Cell(choice_text(d->row));
  };
  const auto speedup = [](const StoredDecision* d) {
    return d == nullptr ? Cell() : Cell(d->row.default_us / d->row.median_us);
  };
  table.add({key_id(key), key.op, problem_text_of(command, key), key.device_class, key.platform,
             change, choice(a), choice(b), speedup(a), speedup(b)});
}

void diff_decisions(const CommandContext& command, const DatabaseContent& a,
                    const DatabaseContent& b, Table& table) {
  std::set<RowKey> keys;
  for (const DatabaseContent* content : {&a, &b}) {
    for (const StoredDecision& decision : content->decisions) keys.insert(decision.row.key);
  }
  for (const RowKey& key : keys) {
    const StoredDecision* in_a = find(a, key);
    const StoredDecision* in_b = find(b, key);
    if (in_a != nullptr && in_b != nullptr && *in_a == *in_b) continue;
    const bool both = in_a != nullptr && in_b != nullptr;
    const bool same_choice = both && choice_text(in_a->row) == choice_text(in_b->row);
    const std::string_view change = same_choice       ? "evidence"
                                    : both            ? "choice"
                                    : in_a != nullptr ? "only in the first"
                                                      : "only in the second";
    add_difference(command, key, change, in_a, in_b, table);
  }
}

/// Calls add(row, change) for the rows of the smaller tables that one has and the other has not.
template <class Row, class Add>
void diff_rows(std::string_view what, const std::vector<Row>& a, const std::vector<Row>& b,
               Add&& add) {
  const auto add_missing = [&](const std::vector<Row>& from, const std::vector<Row>& in,
                               std::string_view where) {
    const auto by_value = [](const Row* x, const Row* y) { return *x < *y; };
    std::set<const Row*, decltype(by_value)> there(by_value);
    for (const Row& row : in) there.insert(&row);
    for (const Row& row : from) {
      if (!there.contains(&row)) add(row, str(what, ' ', where));
    }
  };
  add_missing(a, b, "only in the first");
  add_missing(b, a, "only in the second");
}

/// merge() for this build: any other row of a key is kept rather than one of an earlier version of
/// its kernel, whatever that gained. In any order, again and again, as merge() is.
DatabaseContent merge_for(const CommandContext& command,
                          const std::vector<DatabaseContent>& inputs) {
  RowChecker checker(command.registry());
  DatabaseContent merged, all_stale;
  for (DatabaseContent content : inputs) {
    const auto is_stale = [&](const StoredDecision& decision) {
      return checker.check(decision.row).state == RowState::kStale;
    };
    DatabaseContent stale;
    std::copy_if(content.decisions.begin(), content.decisions.end(),
                 std::back_inserter(stale.decisions), is_stale);
    std::erase_if(content.decisions, is_stale);
    merged = merge(merged, content);
    all_stale = merge(all_stale, stale);
  }
  std::erase_if(all_stale.decisions, [&](const StoredDecision& decision) {
    return find(merged, decision.row.key) != nullptr;
  });
  return merge(merged, all_stale);
}

enum class OnConflict { kBest, kOurs, kTheirs };

OnConflict on_conflict(const Invocation& call) {
  const std::string name =
      call.options.one_of("on-conflict", {"best", "ours", "theirs"}).value_or("best");
  if (name == "ours") return OnConflict::kOurs;
  return name == "theirs" ? OnConflict::kTheirs : OnConflict::kBest;
}

/// What an import makes of the user's rows.
DatabaseContent combine(const CommandContext& command, const DatabaseContent& ours,
                        const DatabaseContent& theirs, OnConflict rule) {
  DatabaseContent combined = merge_for(command, {ours, theirs});
  if (rule == OnConflict::kBest) return combined;
  const DatabaseContent& wins = rule == OnConflict::kOurs ? ours : theirs;
  for (StoredDecision& decision : combined.decisions) {
    if (const StoredDecision* known = find(wins, decision.row.key)) decision = *known;
  }
  return combined;
}

struct ImportCounts {
  std::int64_t added = 0, replaced = 0, kept = 0, pins = 0, quarantine = 0;
};

ImportCounts count_changes(const DatabaseContent& before, const DatabaseContent& after,
                           const DatabaseContent& theirs) {
  ImportCounts counts;
  for (const StoredDecision& decision : theirs.decisions) {
    const StoredDecision* old = find(before, decision.row.key);
    const StoredDecision* now = find(after, decision.row.key);
    if (old == nullptr) {
      ++counts.added;
    } else if (*old == *now) {
      ++counts.kept;
    } else {
      ++counts.replaced;
    }
  }
  counts.pins = std::ssize(after.pins) - std::ssize(before.pins);
  counts.quarantine = std::ssize(after.quarantine) - std::ssize(before.quarantine);
  return counts;
}

}  // namespace

const std::string& user_database(const CommandContext& command) {
  const std::string& path = command.chain().store().settings().user_path;
  if (path.empty()) {
    throw CacheError("there is no user database: neither --db, ATTUNE_DB nor HOME is set");
  }
  return path;
}

std::string output_path(const Invocation& call, const CommandContext& command, Words inputs) {
  const auto output = call.options.text("output");
  if (!output || output->empty()) throw UsageError("expected --output FILE");
  check_not_an_input("--output", *output, inputs);
  for (const ConfigStore::FileStatus& file : command.chain().store().status()) {
    if (!file.path.empty() && same_file(*output, file.path)) {
      throw UsageError(
          str("--output: ", file.path, " is a database in effect; 'db import' adds to the user's"));
    }
  }
  return *output;
}

void note_bad_rows(const Invocation& call, const std::string& path,
                   const DatabaseContent& content) {
  if (content.bad_rows == 0) return;
  call.note(str(path, ": ", count_text(content.bad_rows, "damaged row is", "damaged rows are"),
                " left out: ", content.bad_reasons.at(0), content.bad_rows > 1 ? "; ..." : ""));
}

std::string choice_text(const ConfigRow& row) {
  return str(row.kernel, ' ', config_or_default(row.config));
}

ExitCode merge_files(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) throw UsageError("merge: expected databases and --output FILE");
  const std::string output = output_path(call, command, words);
  std::vector<DatabaseContent> inputs;
  for (const std::string& path : words) inputs.push_back(read_with_warnings(call, path));
  const DatabaseContent merged = merge_for(command, inputs);
  write_keeping_history(output, merged, false);
  Table table({"file", "decisions", "kept", "pins", "quarantine"});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& decisions = inputs[i].decisions;
    const auto kept = std::count_if(decisions.begin(), decisions.end(), [&](const auto& decision) {
      return *find(merged, decision.row.key) == decision;
    });
    table.add(
        {words[i], decisions.size(), kept, inputs[i].pins.size(), inputs[i].quarantine.size()});
  }
  table.add({output, merged.decisions.size(), merged.decisions.size(), merged.pins.size(),
             merged.quarantine.size()});
  call.print(std::move(table));
  return ExitCode::kOk;
}

ExitCode diff_files(const Invocation& call, const CommandContext& command, Words words) {
  if (words.size() != 2) throw UsageError("diff: expected two databases");
  const DatabaseContent a = read_with_warnings(call, words[0]);
  const DatabaseContent b = read_with_warnings(call, words[1]);
  Table table({"key", "op", "problem", "device_class", "platform", "change", "first", "second",
               "first_speedup", "second_speedup"});
  diff_decisions(command, a, b, table);
  diff_rows("pin", a.pins, b.pins, [&](const PinRow& pin, const std::string& change) {
    table.add({key_id(pin.key), pin.key.op, problem_text_of(command, pin.key), pin.key.device_class,
               pin.key.platform, change, str(pin.kernel, ' ', config_or_default(pin.config)),
               Cell(), Cell(), Cell()});
  });
  diff_rows(
      "quarantine", a.quarantine, b.quarantine,
      [&](const QuarantineRow& row, const std::string& change) {
        table.add({Cell(), row.op, row.problem.empty() ? Cell() : Cell(row.problem),
                   row.device_class, Cell(), change,
                   str(row.kernel, ' ', config_or_default(row.config)), Cell(), Cell(), Cell()});
      });
  const bool equal = table.empty();
  if (equal) call.note("no difference");
  if (!equal || !call.for_people()) call.print(std::move(table));
  return equal ? ExitCode::kOk : ExitCode::kNo;
}

ExitCode import_files(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) throw UsageError("import: expected databases, or their text");
  const OnConflict rule = on_conflict(call);
  const std::string& user = user_database(command);
  std::vector<DatabaseContent> inputs;  // all read before anything is written
  for (const std::string& path : words) {
    if (same_file(path, user)) throw UsageError(str("import: ", path, " is the user's database"));
    inputs.push_back(read_with_warnings(call, path));
  }
  Table table({"file", "decisions", "added", "replaced", "kept", "pins", "quarantine"});
  const auto apply = [&](DatabaseContent& all) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      DatabaseContent after = combine(command, all, inputs[i], rule);
      const ImportCounts counts = count_changes(all, after, inputs[i]);
      table.add({words[i], inputs[i].decisions.size(), counts.added, counts.replaced, counts.kept,
                 counts.pins, counts.quarantine});
      all = std::move(after);
    }
  };
  if (call.options.flag("dry-run")) {
    DatabaseContent all = is_there(user) ? read_database_file(user) : DatabaseContent();
    apply(all);
  } else {
    ConfigDatabase(user, ConfigDatabase::Mode::kReadWrite).edit(apply);
  }
  call.print(std::move(table));
  return ExitCode::kOk;
}

}  // namespace attune::cli
