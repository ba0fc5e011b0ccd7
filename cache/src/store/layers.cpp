#include "store/layers.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

namespace attune {

namespace fs = std::filesystem;

namespace {

using Hit = ConfigStore::Hit;

/// A suspicion that nothing has confirmed.
bool is_past(const QuarantineRow& row) {
  return row.reason.starts_with(kSuspect) && std::time(nullptr) - row.created > kSuspicionSeconds;
}

bool same_bucket(const ConfigRow& row, const RowKey& key, const std::string& bucket) {
  return row.bucket == bucket && row.key.op == key.op && row.key.device_class == key.device_class &&
         row.key.platform == key.platform;
}

/// A row, to be copied when it is known to be among the nearest.
struct Neighbour {
  double distance = 0;
  Layer layer = Layer::kUser;
  const std::string* path = nullptr;
  const ConfigRow* row = nullptr;
};

/// The nearest as hits, ties by `tie_of` a row.
template <class TieOf>
std::vector<Hit> nearest_hits(std::vector<Neighbour> rows, TieOf&& tie_of) {
  const std::size_t count = std::min(rows.size(), ConfigStore::kMostNeighbours);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [&](const Neighbour& a, const Neighbour& b) {
                      return a.distance != b.distance ? a.distance < b.distance
                                                      : tie_of(a) < tie_of(b);
                    });
  std::vector<Hit> hits;
  for (std::size_t i = 0; i < count; ++i) {
    hits.push_back({rows[i].layer, *rows[i].path, *rows[i].row, false, rows[i].distance});
  }
  return hits;
}

}  // namespace

std::vector<std::string> databases_at(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".db") files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void LayerFile::take(ConfigSnapshot read) {
  snapshot = std::move(read);
  status.used = true;
  status.rows = static_cast<std::int64_t>(snapshot.rows.size());
  status.bad_rows = snapshot.bad_rows;
  if (status.bad_rows > 0) {
    log_once(LogLevel::kWarning, str("config database ", status.path, ": ",
                                     count_text(status.bad_rows, "damaged or illegal row is",
                                                "damaged or illegal rows are"),
                                     " left out"));
  }
}

LayerFile read_layer_file(Layer layer, const std::string& path) {
  LayerFile file;
  file.status.layer = layer;
  file.status.path = path;
  try {
    file.take(ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).read());
  } catch (const CacheError& error) {
    file.status.reason = error.what();
  }
  return file;
}

bool same_content(const ConfigSnapshot& a, const ConfigSnapshot& b) {
  return a.rows == b.rows && a.pins == b.pins && a.quarantine == b.quarantine;
}

void Layers::replace_user(LayerFile file) {
  user = std::move(file);
  neighbours_.clear();
  std::erase_if(changes_, [](const auto& change) { return change.second.stored; });
}

std::vector<LayerFile> Layers::replace_below(std::vector<LayerFile> files) {
  neighbours_.clear();
  return std::exchange(below, std::move(files));
}

bool Layers::user_is_known_as(const ConfigSnapshot& read) const {
  std::size_t known = 0;
  for (const ConfigRow& row : user.snapshot.rows) known += changes_.contains(row.key) ? 0 : 1;
  for (const auto& [key, change] : changes_) known += change.row && change.stored ? 1 : 0;
  if (known != read.rows.size() || user.snapshot.pins != read.pins) return false;
  for (const ConfigRow& row : read.rows) {
    const auto change = changes_.find(row.key);
    const ConfigRow* here = change == changes_.end() ? user.snapshot.find(row.key)
                            : change->second.row     ? &*change->second.row
                                                     : nullptr;
    if (here == nullptr || *here != row) return false;
  }
  const auto among = [](const std::vector<QuarantineRow>& rows, const QuarantineRow& row) {
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  return std::ranges::all_of(read.quarantine, [&](const QuarantineRow& row) {
    return among(user.snapshot.quarantine, row) || among(quarantined_here_.quarantine, row);
  });
}

std::vector<DatabaseContent> Layers::contents() const {
  const auto add = [](const ConfigSnapshot& snapshot, DatabaseContent& to) {
    to.pins.insert(to.pins.end(), snapshot.pins.begin(), snapshot.pins.end());
    to.quarantine.insert(to.quarantine.end(), snapshot.quarantine.begin(),
                         snapshot.quarantine.end());
  };
  std::vector<DatabaseContent> all(1);
  for (const ConfigRow& row : user.snapshot.rows) {
    if (!changes_.contains(row.key)) all[0].decisions.push_back({row, {}});
  }
  for (const auto& [key, change] : changes_) {
    if (change.row) all[0].decisions.push_back({*change.row, {}});
  }
  add(user.snapshot, all[0]);
  add(quarantined_here_, all[0]);
  for (const LayerFile& file : below) {
    DatabaseContent& content = all.emplace_back();
    for (const ConfigRow& row : file.snapshot.rows) content.decisions.push_back({row, {}});
    add(file.snapshot, content);
  }
  for (DatabaseContent& content : all) content.sort();
  return all;
}

void Layers::freeze(std::optional<DatabaseContent> table) {
  is_frozen_ = true;
  if (!table) return;
  user.snapshot = {};
  for (StoredDecision& decision : table->decisions) {
    user.snapshot.rows.push_back(std::move(decision.row));
  }
  user.snapshot.pins = std::move(table->pins);
  user.snapshot.quarantine = std::move(table->quarantine);
  user.snapshot.index();
  user_path_.clear();  // hits are of no file
  changes_.clear();
  quarantined_here_ = {};
  below.clear();
  neighbours_.clear();
}

void Layers::change(const RowKey& key, std::optional<ConfigRow> row, bool stored) {
  if (is_frozen_) return;
  changes_.insert_or_assign(key, Change{std::move(row), stored});
  neighbours_.erase(key.op);
}

void Layers::quarantine(const QuarantineRow& row) {
  if (is_frozen_) return;
  quarantined_here_.quarantine.push_back(row);
  quarantined_here_.index();
}

Hit Layers::user_hit(const ConfigRow& row, bool stored) const {
  return {Layer::kUser, stored ? user_path_ : "", row};
}

/// Calls f(row, layer, path) for rows as they are now. `rows_of` gives those of a snapshot,
/// `is_one` says of a changed row whether it is one of them.
template <class RowsOf, class IsOne, class F>
void Layers::visit_rows(RowsOf&& rows_of, IsOne&& is_one, F&& f) const {
  static const std::string kNoFile;
  for (const ConfigRow* row : rows_of(user.snapshot)) {
    if (!changes_.contains(row->key)) f(*row, Layer::kUser, user_path_);
  }
  for (const auto& [key, change] : changes_) {
    if (!change.row || !is_one(*change.row)) continue;
    f(*change.row, Layer::kUser, change.stored ? user_path_ : kNoFile);
  }
  for (const LayerFile& file : below) {
    for (const ConfigRow* row : rows_of(file.snapshot))
      f(*row, file.status.layer, file.status.path);
  }
}

std::vector<Hit> Layers::find_exact(const RowKey& key) const {
  std::vector<Hit> hits;
  const auto change = changes_.find(key);
  if (change != changes_.end()) {
    const auto& [row, stored] = change->second;
    if (row) hits.push_back(user_hit(*row, stored));
  } else if (const ConfigRow* row = user.snapshot.find(key)) {
    hits.push_back(user_hit(*row, true));
  }
  for (const LayerFile& file : below) {
    const ConfigRow* row = file.snapshot.find(key);
    if (row != nullptr) hits.push_back({file.status.layer, file.status.path, *row, false});
  }
  return hits;
}

std::vector<Hit> Layers::find_in_bucket(const RowKey& key, const std::string& bucket) const {
  std::vector<Neighbour> near;
  visit_rows([&](const ConfigSnapshot& snapshot) { return snapshot.find_bucket(key, bucket); },
             [&](const ConfigRow& row) { return same_bucket(row, key, bucket); },
             [&](const ConfigRow& row, Layer layer, const std::string& path) {
               if (row.key == key) return;
               near.push_back({problem_distance(row.key.problem, key.problem), layer, &path, &row});
             });
  std::vector<Hit> hits = nearest_hits(std::move(near), [](const Neighbour& of) {
    return std::tie(of.row->key, of.layer, *of.path);
  });
  for (Hit& hit : hits) {
    hit.bucket = true;
    hit.octaves = 0;
  }
  return hits;
}

/// Indexed on first use and after each change.
const NeighbourIndex& Layers::neighbours_of(const std::string& op,
                                            const std::vector<std::string>& scalable) {
  const auto known = neighbours_.find(op);
  if (known != neighbours_.end() && known->second.scalable() == scalable) return known->second;
  NeighbourIndex index(scalable);
  const auto all = [](const ConfigSnapshot& snapshot) {
    std::vector<const ConfigRow*> rows;
    rows.reserve(snapshot.rows.size());
    for (const ConfigRow& row : snapshot.rows) rows.push_back(&row);
    return rows;
  };
  visit_rows(
      all, [](const ConfigRow&) { return true; },
      [&](const ConfigRow& row, Layer layer, const std::string& path) {
        if (row.key.op == op) index.add(row, layer, path);
      });
  return neighbours_.insert_or_assign(op, std::move(index)).first->second;
}

std::vector<Hit> Layers::find_nearest(const RowKey& key, const std::vector<std::string>& scalable,
                                      double octaves) {
  std::vector<Neighbour> near;
  for (const auto& [entry, distance] : neighbours_of(key.op, scalable).find(key, octaves)) {
    near.push_back({distance, entry->layer, entry->path, entry->row});
  }
  return nearest_hits(std::move(near), [](const Neighbour& of) {
    return std::tie(of.layer, of.row->key, *of.path);
  });
}

std::vector<Hit> Layers::find_elsewhere(const RowKey& key) const {
  std::vector<Hit> hits;
  visit_rows(
      [&](const ConfigSnapshot& snapshot) { return snapshot.find_problem(key.op, key.problem); },
      [&](const ConfigRow& row) { return row.key.op == key.op && row.key.problem == key.problem; },
      [&](const ConfigRow& row, Layer layer, const std::string& path) {
        if (row.key != key) hits.push_back({layer, path, row, false});
      });
  return hits;
}

std::optional<PinRow> Layers::find_pin(const RowKey& key) const {
  const std::int64_t now = std::time(nullptr);
  if (const PinRow* pin = user.snapshot.find_pin(key, now)) return *pin;
  for (const LayerFile& file : below) {
    if (const PinRow* pin = file.snapshot.find_pin(key, now)) return *pin;
  }
  return std::nullopt;
}

std::optional<std::string> Layers::quarantined(const RowKey& key, const std::string& kernel,
                                               std::int64_t kernel_version,
                                               const std::string& config) const {
  std::vector<const ConfigSnapshot*> snapshots = {&quarantined_here_, &user.snapshot};
  for (const LayerFile& file : below) snapshots.push_back(&file.snapshot);
  for (const ConfigSnapshot* snapshot : snapshots) {
    const QuarantineRow* row = snapshot->find_quarantine(key, kernel, kernel_version, config);
    if (row != nullptr && !is_past(*row)) return row->reason;
  }
  return std::nullopt;
}

std::vector<ConfigStore::FileStatus> Layers::status() const {
  std::vector<ConfigStore::FileStatus> all = {user.status};
  for (const auto& [key, change] : changes_) {
    const bool was = user.snapshot.find(key) != nullptr;
    if (change.stored) all[0].rows += (change.row ? 1 : 0) - (was ? 1 : 0);
  }
  for (const LayerFile& file : below) all.push_back(file.status);
  return all;
}

}  // namespace attune
