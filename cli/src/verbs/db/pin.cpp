// `attune db pin` and `unpin`: an operator's decision above everything that was measured.
#include <ctime>
#include <set>

#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

ExitCode list_pins(const Invocation& call, const CommandContext& command) {
  Table table({"key", "op", "problem", "device_class", "platform", "kernel", "config", "reason",
               "created", "expires", "file"});
  const std::int64_t now = std::time(nullptr);
  for (const std::string& path : files_or_those_in_effect(command, {})) {
    for (const PinRow& pin : read_database_file(path).pins) {
      const bool expired = pin.expires != 0 && pin.expires <= now;
      table.add({key_id(pin.key), pin.key.op, problem_text_of(command, pin.key),
                 pin.key.device_class, pin.key.platform, pin.kernel, config_or_default(pin.config),
                 pin.reason, date_text(pin.created),
                 pin.expires == 0 ? Cell("never")
                                  : Cell(date_text(pin.expires) + (expired ? ", over" : ""),
                                         expired ? Tone::kFaint : Tone::kPlain),
                 path});
    }
  }
  if (table.empty()) call.note("no pins");
  call.print(std::move(table));
  return ExitCode::kOk;
}

/// The whole config that --config means for the target; what it does not name is the heuristic's.
PinRow pin_of(const CommandContext& command, const Target& target) {
  const Choice choice = command.context().select(target.problem, command.request(target));
  PinRow pin;
  pin.key = row_key(command, target);
  pin.kernel = choice.kernel->name();
  pin.config = to_text(choice.kernel->params(choice.config));
  return pin;
}

}  // namespace

ExitCode pin_problems(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) return list_pins(call, command);
  if (!call.options.flag("config")) {
    throw UsageError("pin: expected --config kernel=NAME,... : what is to be used");
  }
  const std::string reason = call.options.text("reason").value_or("");
  if (reason.empty()) throw UsageError("pin: expected --reason TEXT, for whoever finds it later");
  const std::int64_t now = std::time(nullptr);
  const auto lasts = call.options.duration("expires");
  std::vector<PinRow> pins;
  std::set<RowKey> pinned;
  for (const Target& target : command.targets(words)) {
    PinRow pin = pin_of(command, target);
    pin.reason = reason;
    pin.created = now;
    if (lasts) pin.expires = now + std::chrono::ceil<std::chrono::seconds>(*lasts).count();
    if (pinned.insert(pin.key).second) pins.push_back(std::move(pin));
  }
  ConfigDatabase(user_database(command), ConfigDatabase::Mode::kReadWrite)
      .edit([&](DatabaseContent& all) {
        std::erase_if(all.pins, [&](const PinRow& old) { return pinned.contains(old.key); });
        all.pins.insert(all.pins.end(), pins.begin(), pins.end());
      });
  for (const PinRow& pin : pins) {
    call.note(str("pinned ", pin.key.op, ' ', problem_text_of(command, pin.key), " to ", pin.kernel,
                  ' ', config_or_default(pin.config), " on ", pin.key.device_class,
                  pin.expires == 0 ? "" : ", until " + date_text(pin.expires)));
  }
  return ExitCode::kOk;
}

ExitCode unpin_problems(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) throw UsageError("unpin: expected an op and a SPEC, or a key of 'db pin'");
  std::set<RowKey> keys;
  const bool by_key = words.size() == 1 && command.registry().find_op(words[0]) == nullptr;
  if (!by_key) {
    for (const Target& target : command.targets(words)) keys.insert(row_key(command, target));
  }
  std::size_t removed = 0;
  const std::string& path = user_database(command);
  if (!is_there(path)) return ExitCode::kNo;
  ConfigDatabase(path, ConfigDatabase::Mode::kReadWrite).edit([&](DatabaseContent& all) {
    removed = std::erase_if(all.pins, [&](const PinRow& pin) {
      return by_key ? key_id(pin.key) == words[0] : keys.contains(pin.key);
    });
  });
  call.note(str(count_text(removed, "pin"), " removed from ", path));
  return removed > 0 ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace attune::cli
