#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include <attune/cache/config_store.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "store/layer_file.hpp"
#include "store/neighbour_index.hpp"
#include "store/problem_distance.hpp"

namespace attune {
namespace {

using Hit = ConfigStore::Hit;
using Mode = ConfigDatabase::Mode;

/// A row written or erased since the user's database was last read.
struct Change {
  std::optional<ConfigRow> row;  // nothing: erased
  bool stored = false;           // in the file too; if not, memory is all there is
};

/// A suspicion that nothing has confirmed.
bool is_past(const QuarantineRow& row) {
  return row.reason.starts_with(kSuspect) && std::time(nullptr) - row.created > kSuspicionSeconds;
}

bool same_bucket(const ConfigRow& row, const RowKey& key, const std::string& bucket) {
  return row.bucket == bucket && row.key.op == key.op && row.key.device_class == key.device_class &&
         row.key.platform == key.platform;
}

/// A row that is not copied before it is known to be among the nearest.
struct Near {
  double distance = 0;
  Layer layer = Layer::kUser;
  const std::string* path = nullptr;
  const ConfigRow* row = nullptr;
};

/// The nearest as hits, ties by `tie_of` a row.
template <class TieOf>
std::vector<Hit> nearest_hits(std::vector<Near> rows, TieOf&& tie_of) {
  const std::size_t count = std::min(rows.size(), ConfigStore::kMostNeighbours);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [&](const Near& a, const Near& b) {
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

/// Two locks, so that look-ups never wait for a file: `disk` is held while the user's database is
/// used, `memory` while the rest is. Who needs both takes `disk` first.
struct ConfigStore::State {
  explicit State(StoreSettings given) : settings(std::move(given)) {
    user.status.path = settings.user_path;
  }

  void load_once() {
    std::call_once(loaded, [this] {
      reload_user();
      std::vector<LayerFile> files;
      const auto add = [&](Layer layer, const std::vector<std::string>& paths) {
        for (const std::string& path : paths) {
          if (layer == Layer::kShipped && !is_there(path)) continue;
          for (const std::string& file : databases_at(path)) {
            files.push_back(read_layer_file(layer, file));
          }
        }
      };
      add(Layer::kSite, settings.site_paths);
      add(Layer::kShipped, settings.shipped_paths);
      const std::lock_guard lock(memory);
      below = std::move(files);
      neighbours.clear();
    });
  }

  /// Opens and reads the user's database if there is one, as writable as it can be.
  void reload_user() {
    const std::lock_guard disk_lock(disk);
    database.reset();
    LayerFile file;
    file.status.path = settings.user_path;
    const bool named = !settings.user_path.empty();
    const bool there = named && is_there(settings.user_path);
    may_make = named && !there && !settings.read_only;
    if (there) {
      open_user(file);
    } else {
      file.status.reason =
          named ? "not there" : "no user database: neither ATTUNE_DB nor HOME is set";
    }
    file.status.writable = database != nullptr && database->writable();
    const std::lock_guard lock(memory);
    user = std::move(file);
    neighbours.clear();
    std::erase_if(changes, [](const auto& change) { return change.second.stored; });
  }

  void open_user(LayerFile& file) {
    const Mode best = settings.read_only ? Mode::kRecover : Mode::kReadWrite;
    for (const Mode mode : {best, Mode::kReadOnly}) {
      try {
        database = std::make_unique<ConfigDatabase>(settings.user_path, mode);
        if (mode == Mode::kReadWrite) blame_suspects();
        file.take(database->read());
        return;
      } catch (const CacheError& error) {
        if (file.status.reason.empty()) file.status.reason = error.what();
        database.reset();
      }
    }
    file.status.reason +=
        "; it is left as it is and not used. Move it away to start a new one, or "
        "name another by ATTUNE_DB";
    log_once(LogLevel::kWarning, file.status.reason);
  }

  /// Quarantines what was running when a process or the machine ended.
  void blame_suspects() {
    take_suspects(settings.user_path, [this](const QuarantineRow& row) {
      database->quarantine(row);
      log(LogLevel::kWarning, str(row.kernel, " ", row.config, " is not tried for a week on ",
                                  row.problem, ": ", row.reason));
    });
  }

  /// The user's database for writing, made when it is not there; the caller holds `disk`. Null,
  /// with the reason.
  ConfigDatabase* writer(std::string& reason) {
    if (database == nullptr && may_make) {
      may_make = false;
      try {
        database = std::make_unique<ConfigDatabase>(settings.user_path, Mode::kReadWrite);
        const std::lock_guard lock(memory);
        user.status.used = user.status.writable = true;
        user.status.reason.clear();
      } catch (const CacheError& error) {
        const std::lock_guard lock(memory);
        user.status.reason = error.what();
      }
    }
    if (database != nullptr && database->writable()) return database.get();
    const std::lock_guard lock(memory);
    reason =
        settings.read_only ? "the user's database is opened for reading only" : user.status.reason;
    return nullptr;
  }

  enum class IfAbsent { kMake, kNothingToDo };

  /// Calls f(database). Returns why that was not possible, or "".
  template <class F>
  std::string write(IfAbsent if_absent, F&& f) {
    load_once();
    std::string reason;
    const std::lock_guard lock(disk);
    if (may_make && if_absent == IfAbsent::kNothingToDo) return reason;
    try {
      if (ConfigDatabase* const db = writer(reason)) f(*db);
    } catch (const Error& error) {
      reason = error.what();
    }
    if (!reason.empty() && !settings.read_only) {
      log_once(LogLevel::kWarning,
               str(reason, "; results are kept in memory until this process ends"));
    }
    return reason;
  }

  Hit user_hit(const ConfigRow& row, bool stored) const {
    return {Layer::kUser, stored ? settings.user_path : "", row};
  }

  std::vector<Hit> exact_hits(const RowKey& key) const {
    std::vector<Hit> hits;
    const auto change = changes.find(key);
    if (change != changes.end()) {
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

  std::vector<Hit> bucket_hits(const RowKey& key, const std::string& bucket) const {
    std::vector<Near> near;
    visit_rows(
        [&](const ConfigSnapshot& snapshot) { return snapshot.find_bucket(key, bucket); },
        [&](const ConfigRow& row) { return same_bucket(row, key, bucket); },
        [&](const ConfigRow& row, Layer layer, const std::string& path) {
          if (row.key == key) return;
          near.push_back({problem_distance(row.key.problem, key.problem), layer, &path, &row});
        });
    std::vector<Hit> hits = nearest_hits(
        std::move(near), [](const Near& of) { return std::tie(of.row->key, of.layer, *of.path); });
    for (Hit& hit : hits) {
      hit.bucket = true;
      hit.octaves = 0;
    }
    return hits;
  }

  /// Calls f(row, layer, path) for every row, as it is now.
  template <class F>
  void for_each_row(F&& f) const {
    const auto all = [](const ConfigSnapshot& snapshot) {
      std::vector<const ConfigRow*> rows;
      rows.reserve(snapshot.rows.size());
      for (const ConfigRow& row : snapshot.rows) rows.push_back(&row);
      return rows;
    };
    visit_rows(
        all, [](const ConfigRow&) { return true; }, f);
  }

  /// The same for the rows of a problem, for any device and platform.
  template <class F>
  void for_each_row_of(const std::string& op, const std::string& problem, F&& f) const {
    visit_rows([&](const ConfigSnapshot& snapshot) { return snapshot.find_problem(op, problem); },
               [&](const ConfigRow& row) { return row.key.op == op && row.key.problem == problem; },
               f);
  }

  /// `rows_of` gives the rows of a snapshot, `is_one` says of a row whether it is one of them.
  template <class RowsOf, class IsOne, class F>
  void visit_rows(RowsOf&& rows_of, IsOne&& is_one, F&& f) const {
    static const std::string kNoFile;
    for (const ConfigRow* row : rows_of(user.snapshot)) {
      if (!changes.contains(row->key)) f(*row, Layer::kUser, settings.user_path);
    }
    for (const auto& [key, change] : changes) {
      if (!change.row || !is_one(*change.row)) continue;
      f(*change.row, Layer::kUser, change.stored ? settings.user_path : kNoFile);
    }
    for (const LayerFile& file : below) {
      for (const ConfigRow* row : rows_of(file.snapshot)) {
        f(*row, file.status.layer, file.status.path);
      }
    }
  }

  /// The neighbours of an op's problems, indexed on first use and after each change.
  const NeighbourIndex& neighbours_of(const std::string& op,
                                      const std::vector<std::string>& scalable) {
    const auto known = neighbours.find(op);
    if (known != neighbours.end() && known->second.scalable() == scalable) return known->second;
    NeighbourIndex index(scalable);
    for_each_row([&](const ConfigRow& row, Layer layer, const std::string& path) {
      if (row.key.op == op) index.add(row, layer, path);
    });
    return neighbours.insert_or_assign(op, std::move(index)).first->second;
  }

  void change(const RowKey& key, Change to) {
    const std::lock_guard lock(memory);
    changes.insert_or_assign(key, std::move(to));
    neighbours.erase(key.op);
  }

  const StoreSettings settings;
  std::once_flag loaded;

  std::mutex disk;
  std::unique_ptr<ConfigDatabase> database;  // the user's
  bool may_make = false;                     // it is not there, and may be made

  std::mutex memory;
  LayerFile user;
  std::vector<LayerFile> below;  // site, then shipped
  std::map<RowKey, Change> changes;
  std::map<std::string, NeighbourIndex> neighbours;  // by op; points into the rows above
  ConfigSnapshot own;                                // quarantined by this process; no rows
};

ConfigStore::ConfigStore(StoreSettings settings)
    : state_(std::make_unique<State>(std::move(settings))) {}
ConfigStore::~ConfigStore() = default;

std::vector<Hit> ConfigStore::find(const RowKey& key, const std::string& bucket) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits = state_->exact_hits(key);
  if (bucket.empty()) return hits;
  std::vector<Hit> neighbours = state_->bucket_hits(key, bucket);
  std::move(neighbours.begin(), neighbours.end(), std::back_inserter(hits));
  return hits;
}

std::vector<Hit> ConfigStore::find_nearest(const RowKey& key,
                                           const std::vector<std::string>& scalable,
                                           double octaves) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Near> near;
  for (const auto& [entry, distance] : state_->neighbours_of(key.op, scalable).find(key, octaves)) {
    near.push_back({distance, entry->layer, entry->path, entry->row});
  }
  return nearest_hits(std::move(near),
                      [](const Near& of) { return std::tie(of.layer, of.row->key, *of.path); });
}

std::vector<Hit> ConfigStore::find_elsewhere(const RowKey& key) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits;
  state_->for_each_row_of(key.op, key.problem,
                          [&](const ConfigRow& row, Layer layer, const std::string& path) {
                            if (row.key != key) hits.push_back({layer, path, row, false});
                          });
  return hits;
}

std::optional<PinRow> ConfigStore::find_pin(const RowKey& key) const {
  state_->load_once();
  const std::int64_t now = std::time(nullptr);
  const std::lock_guard lock(state_->memory);
  if (const PinRow* pin = state_->user.snapshot.find_pin(key, now)) return *pin;
  for (const LayerFile& file : state_->below) {
    if (const PinRow* pin = file.snapshot.find_pin(key, now)) return *pin;
  }
  return std::nullopt;
}

std::optional<std::string> ConfigStore::quarantined(const RowKey& key, const std::string& kernel,
                                                    std::int64_t kernel_version,
                                                    const std::string& config) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<const ConfigSnapshot*> snapshots = {&state_->own, &state_->user.snapshot};
  for (const LayerFile& file : state_->below) snapshots.push_back(&file.snapshot);
  for (const ConfigSnapshot* snapshot : snapshots) {
    const QuarantineRow* row = snapshot->find_quarantine(key, kernel, kernel_version, config);
    if (row != nullptr && !is_past(*row)) return row->reason;
  }
  return std::nullopt;
}

std::unique_ptr<SuspectNote> ConfigStore::note_suspects(AtRisk at_risk) {
  const bool writes = !state_->settings.read_only;
  return std::make_unique<SuspectNote>(writes ? state_->settings.user_path : "", at_risk);
}

std::string ConfigStore::put(const ConfigRow& row, std::span<const TrialRow> trials) {
  std::string reason =
      state_->write(State::IfAbsent::kMake, [&](ConfigDatabase& db) { db.put(row, trials); });
  state_->change(row.key, {row, reason.empty()});
  return reason;
}

void ConfigStore::erase(const RowKey& key) {
  const std::string reason =
      state_->write(State::IfAbsent::kNothingToDo, [&](ConfigDatabase& db) { db.erase(key); });
  state_->change(key, {std::nullopt, reason.empty()});
}

void ConfigStore::quarantine(const QuarantineRow& row) {
  state_->write(State::IfAbsent::kMake, [&](ConfigDatabase& db) { db.quarantine(row); });
  const std::lock_guard lock(state_->memory);
  state_->own.quarantine.push_back(row);
  state_->own.index();
}

bool ConfigStore::acquire_lease(const RowKey& key, std::int64_t seconds) {
  bool taken = true;
  state_->write(State::IfAbsent::kMake,
                [&](ConfigDatabase& db) { taken = db.acquire_lease(key, seconds); });
  return taken;
}

void ConfigStore::release_lease(const RowKey& key) {
  state_->write(State::IfAbsent::kNothingToDo, [&](ConfigDatabase& db) { db.release_lease(key); });
}

void ConfigStore::reload_user() {
  state_->load_once();
  state_->reload_user();
}

std::vector<ConfigStore::FileStatus> ConfigStore::status() const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<FileStatus> all = {state_->user.status};
  for (const auto& [key, change] : state_->changes) {
    const bool was = state_->user.snapshot.find(key) != nullptr;
    if (change.stored) all[0].rows += (change.row ? 1 : 0) - (was ? 1 : 0);
  }
  for (const LayerFile& file : state_->below) all.push_back(file.status);
  return all;
}

const StoreSettings& ConfigStore::settings() const { return state_->settings; }

}  // namespace attune
