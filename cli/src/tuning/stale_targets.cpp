#include "tuning/stale_targets.hpp"

#include <set>

#include "verbs/db/machine_rows.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

/// The keys that OP SPEC... stands for; empty: every one.
std::set<RowKey> wanted_keys(const CommandContext& command, std::span<const std::string> words) {
  std::set<RowKey> keys;
  if (words.empty()) return keys;
  for (const Target& target : command.targets(words)) {
    keys.insert(row_key(command, target));
  }
  return keys;
}

}  // namespace

std::vector<Target> stale_targets(const CommandContext& command,
                                  std::span<const std::string> words) {
  const Registry& registry = command.registry();
  const std::set<RowKey> wanted = wanted_keys(command, words);
  RowChecker checker(registry);
  std::set<RowKey> seen;
  std::vector<Target> targets;
  for (const StoredRow& stored : stored_rows(command, {}).rows) {
    const RowKey& key = stored.row.key;
    if (!wanted.empty() && !wanted.contains(key)) continue;
    if (why_stale_here(registry, checker, stored.row).empty()) continue;
    const Device* device = device_of_class(registry, key.device_class);
    if (!command.may_use(*device) || !seen.insert(key).second) continue;
    const OpInfo& op = registry.op(key.op);
    Target target{&op, op.parse(parse_params(key.problem, ' ')), device,
                  problem_text_of(command, key)};
    if (!command.read_request(key.platform, target)) continue;
    targets.push_back(std::move(target));
  }
  return targets;
}

}  // namespace attune::cli
