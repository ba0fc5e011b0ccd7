#include "verbs/db/stored_rows.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "program/verb.hpp"

namespace attune::cli {
namespace {

using Mode = ConfigDatabase::Mode;

void read_file(const std::string& path, Layer layer, StoredRows& into) {
  ConfigSnapshot snapshot = ConfigDatabase(path, Mode::kReadOnly).read();
  into.bad_rows += snapshot.bad_rows;
  for (ConfigRow& row : snapshot.rows) into.rows.push_back({layer, path, std::move(row)});
}

}  // namespace

StoredRows stored_rows(const CommandContext& command, std::span<const std::string> files) {
  StoredRows stored;
  for (const std::string& file : files) read_file(file, Layer::kUser, stored);
  if (files.empty()) {
    for (const ConfigStore::FileStatus& file : command.chain().store().status()) {
      if (file.used) read_file(file.path, file.layer, stored);
    }
  }
  std::stable_sort(
      stored.rows.begin(), stored.rows.end(), [](const StoredRow& a, const StoredRow& b) {
        return std::tie(a.row.key.op, a.row.key.problem, a.row.key.device_class, a.layer) <
               std::tie(b.row.key.op, b.row.key.problem, b.row.key.device_class, b.layer);
      });
  return stored;
}

std::string key_id(const RowKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr int kLength = 12;
  const std::uint64_t hash =
      op_id(str(key.op, '\n', key.device_class, '\n', key.platform, '\n', key.problem));
  std::string id;
  for (int i = 0; i < kLength; ++i) id += kDigits[(hash >> (60 - 4 * i)) & 15U];
  return id;
}

std::string problem_text_of(const CommandContext& command, const RowKey& key) {
  const OpInfo* op = command.registry().find_op(key.op);
  if (op == nullptr) return key.problem;  // of a plugin that is not loaded
  try {
    return short_text(*op, op->parse(parse_params(key.problem, ' ')));
  } catch (const InvalidArgument&) {
    return key.problem;  // of another version of the op
  }
}

std::vector<TrialRow> Evidence::trials_of(const StoredRow& row) {
  const ConfigDatabase& file =
      files_.try_emplace(row.path, row.path, Mode::kReadOnly).first->second;
  std::vector<std::string> damage;
  std::vector<TrialRow> trials = file.trials(row.row.key, &damage);
  if (!damage.empty()) std::ranges::move(damage, std::back_inserter(damage_[row.path]));
  std::stable_sort(trials.begin(), trials.end(), [&](const TrialRow& a, const TrialRow& b) {
    return std::tuple(a.median_us == 0, a.median_us) < std::tuple(b.median_us == 0, b.median_us);
  });
  return trials;
}

std::vector<TrialRow> Evidence::trials_of(const CommandContext& command, const Target& target) {
  const RowKey key = row_key(command, target);
  const auto hits = command.chain().store().find(key, target.op->text(target.problem, true));
  if (hits.empty() || hits.front().path.empty()) return {};
  return trials_of(StoredRow{hits.front().layer, hits.front().path, hits.front().row});
}

void Evidence::note_damage(const Invocation& call) const {
  for (const auto& [path, reasons] : damage_) {
    call.note(str(path, ": candidates that cannot be read are left out: ", reasons.front(),
                  reasons.size() > 1 ? "; ..." : "", "; 'attune db verify' tells more"));
  }
}

}  // namespace attune::cli
