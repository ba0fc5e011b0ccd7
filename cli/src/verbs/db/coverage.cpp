// `attune db verify --covers`: whether databases have a row for each problem of a list, which is
// how a tuning by many processes is known to be complete. What their launcher says of their ends is
// no proof.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <attune/core/version.hpp>

#include "output/text.hpp"
#include "tuning/shard.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"

namespace attune::cli {
namespace {

/// What the files hold, and the site's and shipped databases, whose problems `attune tune` skips.
class KnownRows {
 public:
  KnownRows(const Invocation& call, const CommandContext& command, Words files)
      : checker_(command.registry()) {
    for (const std::string& path : files) {
      const DatabaseContent content = read(call, path);
      for (const StoredDecision& decision : content.decisions) {
        classes_.insert(decision.row.key.device_class);
        add(decision.row);
      }
    }
    for (const ConfigStore::FileStatus& file : command.chain().store().status()) {
      if (file.layer == Layer::kUser || !file.used) continue;
      for (const StoredDecision& decision : read_database_file(file.path).decisions) {
        add(decision.row);
      }
    }
  }

  /// Of the files.
  const std::set<std::string>& classes() const { return classes_; }

  /// Why a row for the key is missing; "" when one is there.
  std::string why_missing(const RowKey& key) const {
    const auto found = why_not_.find(key);
    return found == why_not_.end() ? "no row" : found->second;
  }

 private:
  /// A process that was killed leaves a file without rows, or one whose next writer has to undo
  /// something first: what it was to hold is missing.
  static DatabaseContent read(const Invocation& call, const std::string& path) {
    try {
      DatabaseContent content = read_database_file(path);
      note_bad_rows(call, path, content);
      return content;
    } catch (const CacheError& error) {
      if (!is_there(path)) throw;
      call.note(str(error.what(), "; none of its rows count"));
      return {};
    }
  }

  void add(const ConfigRow& row) {
    std::string why = why_not(row);
    const auto [known, is_new] = why_not_.try_emplace(row.key, why);
    if (!is_new && why.empty()) known->second.clear();
  }

  /// As `attune tune` would see it: what it tunes again is not there. Of a kernel that is not
  /// loaded nothing can be said.
  std::string why_not(const ConfigRow& row) {
    const RowVerdict verdict = checker_.check(row);
    if (verdict.state == RowState::kStale || verdict.state == RowState::kInvalid) {
      return str(to_string(verdict.state), ": ", verdict.reason);
    }
    if (row.library_version == ATTUNE_VERSION) return "";
    return str("stale: tuned by attune ", row.library_version, ", this is " ATTUNE_VERSION);
  }

  RowChecker checker_;
  std::set<std::string> classes_;
  std::map<RowKey, std::string> why_not_;
};

/// The classes that a problem needs rows for. An unrecorded one: those that were named, else those
/// that the files have.
std::vector<std::string> classes_of(const Invocation& call, const ListedProblem& problem,
                                    const KnownRows& rows) {
  std::vector<std::string> named = call.options.texts("device-class");
  if (!problem.device_class.empty()) {
    const bool wanted =
        named.empty() || std::find(named.begin(), named.end(), problem.device_class) != named.end();
    return wanted ? std::vector{problem.device_class} : std::vector<std::string>();
  }
  if (!named.empty()) return named;
  if (rows.classes().empty()) return {""};
  return {rows.classes().begin(), rows.classes().end()};
}

}  // namespace

ExitCode verify_coverage(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) throw UsageError("verify --covers: expected databases, or their text");
  const std::string list = call.options.text("covers").value_or("");
  const std::vector<std::string> source{list.starts_with('@') || list == "-" ? list : '@' + list};
  const std::vector<ListedProblem> problems = command.listed(source);
  const auto shards = call.options.integer("shards", 1, kMostShards);
  const std::vector<int> part_of =
      shards_of(command, problems, static_cast<int>(shards.value_or(1)));
  const KnownRows rows(call, command, words);
  Table missing({"device_class", "shard", "op", "problem", "reason"});
  std::set<RowKey> seen;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const OpInfo& op = *problems[i].op;
    for (const std::string& device_class : classes_of(call, problems[i], rows)) {
      const RowKey key{.op = std::string(op.kernel_op),
                       .device_class = device_class,
                       .platform = command.row_request(problems[i]),
                       .problem = op.text(problems[i].problem, false)};
      if (!seen.insert(key).second) continue;
      const std::string why = rows.why_missing(key);
      if (why.empty()) continue;
      missing.add({device_class.empty() ? Cell() : Cell(device_class),
                   shards ? Cell(part_of[i]) : Cell(), op.name, short_text(op, problems[i].problem),
                   why});
    }
  }
  const std::size_t absent = missing.rows().size();
  call.note(str(seen.size() - absent, " of ", count_text(seen.size(), "row"), " there"));
  if (absent > 0 || !call.for_people()) call.print(std::move(missing));
  return absent > 0 ? ExitCode::kNo : ExitCode::kOk;
}

}  // namespace attune::cli
