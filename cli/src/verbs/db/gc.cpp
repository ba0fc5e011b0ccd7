// `attune db gc`: removes what can never be used again, and what it is asked to.
#include <algorithm>
#include <ctime>

#include <attune/cache/suspect_note.hpp>

#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

struct Rules {
  bool stale = false;           // rows of other kernel versions
  bool unknown = false;         // rows of kernels that are not loaded
  bool trials = false;          // the candidates behind each decision
  std::int64_t older_than = 0;  // seconds since 1970; 0: any age is kept
  std::int64_t now = 0;
};

Rules rules_of(const Invocation& call) {
  Rules rules;
  rules.stale = call.options.flag("stale");
  rules.unknown = call.options.flag("unknown");
  rules.trials = call.options.flag("trials");
  rules.now = std::time(nullptr);
  if (const auto age = call.options.duration("older-than")) {
    rules.older_than = rules.now - std::chrono::duration_cast<std::chrono::seconds>(*age).count();
  }
  return rules;
}

class Collector {
 public:
  Collector(const CommandContext& command, const Rules& rules)
      : command_(command), rules_(rules), checker_(command.registry()) {}

  void collect(DatabaseContent& all) {
    bad_rows_ = all.bad_rows;
    for (const std::string& reason : all.bad_reasons) {
      removed_.add({"damaged", Cell(), Cell(), Cell(), reason});
    }
    std::erase_if(all.decisions, [&](const StoredDecision& decision) {
      return removes("decision", decision.row.key, choice_text(decision.row),
                     why_removed(decision.row));
    });
    std::erase_if(all.pins, [&](const PinRow& pin) {
      return removes("pin", pin.key, str(pin.kernel, ' ', config_or_default(pin.config)),
                     why_removed(pin));
    });
    std::erase_if(all.quarantine, [&](const QuarantineRow& row) {
      const std::string why = why_removed(row);
      if (why.empty()) return false;
      removed_.add({"quarantine", row.op, row.problem.empty() ? Cell() : Cell(row.problem),
                    str(row.kernel, ' ', config_or_default(row.config)), why});
      return true;
    });
    if (rules_.trials) drop_trials(all);
  }

  Table take_removed() { return std::move(removed_); }

 private:
  bool removes(std::string_view table, const RowKey& key, const std::string& choice,
               const std::string& why) {
    if (why.empty()) return false;
    removed_.add({table, key.op, problem_text_of(command_, key), choice, why});
    return true;
  }

  std::string why_removed(const ConfigRow& row) {
    if (row.created < rules_.older_than) return str("measured ", age_text(row.created), " ago");
    const RowVerdict verdict = checker_.check(row);
    const bool goes = verdict.state == RowState::kInvalid ||
                      (verdict.state == RowState::kStale && rules_.stale) ||
                      (verdict.state == RowState::kUnknown && rules_.unknown);
    return goes ? str(to_string(verdict.state), ": ", verdict.reason) : "";
  }

  std::string why_removed(const PinRow& pin) const {
    return pin.expires != 0 && pin.expires <= rules_.now ? "expired " + date_text(pin.expires) : "";
  }

  std::string why_removed(const QuarantineRow& row) const {
    if (row.reason.starts_with(kSuspect) && rules_.now - row.created > kSuspicionSeconds) {
      return str("a suspicion that nothing confirmed for ", age_text(row.created));
    }
    const RegisteredKernel* kernel = command_.registry().find_kernel(row.kernel);
    if (kernel == nullptr || row.kernel_version >= kernel->kernel->version()) return "";
    return str("of version ", row.kernel_version, " of the kernel, which is at ",
               kernel->kernel->version());
  }

  void drop_trials(DatabaseContent& all) {
    std::size_t count = 0;
    for (StoredDecision& decision : all.decisions) {
      count += decision.trials.size();
      decision.trials.clear();
    }
    if (count > 0)
      removed_.add({"trial", Cell(), Cell(), Cell(), str(count_text(count, "row"), ": --trials")});
  }

  const CommandContext& command_;
  const Rules& rules_;
  RowChecker checker_;
  std::int64_t bad_rows_ = 0;
  Table removed_{{"table", "op", "problem", "choice", "why"}};
};

}  // namespace

ExitCode collect_garbage(const Invocation& call, const CommandContext& command, Words words) {
  if (!words.empty()) {
    throw UsageError(str("gc: '", words[0], "': it works on the user's database; name it by --db"));
  }
  const Rules rules = rules_of(call);
  const std::string& path = user_database(command);
  const bool dry = call.options.flag("dry-run");
  Collector collector(command, rules);
  if (!is_there(path)) {
    call.note("there is no database yet");
  } else if (dry) {
    DatabaseContent all = read_database_file(path);
    collector.collect(all);
  } else {
    ConfigDatabase(path, ConfigDatabase::Mode::kReadWrite)
        .edit([&](DatabaseContent& all) { collector.collect(all); },
              ConfigDatabase::BadRows::kRemove);
  }
  Table removed = collector.take_removed();
  const std::size_t count = removed.rows().size();
  if (count > 0 || !call.for_people()) call.print(std::move(removed));
  call.note(str(count, dry ? " would be removed" : " removed"));
  return ExitCode::kOk;
}

}  // namespace attune::cli
