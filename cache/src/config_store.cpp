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

#include "layer_file.hpp"
#include "neighbour_index.hpp"
#include "problem_distance.hpp"

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

void sort_by_distance(std::vector<Hit>& hits, const RowKey& key) {
  std::vector<std::pair<double, Hit>> ranked;
  for (Hit& hit : hits) {
    const double distance = problem_distance(hit.row.key.problem, key.problem);
    ranked.emplace_back(distance, std::move(hit));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.row.key) < std::tie(b.first, b.second.row.key);
  });
  for (std::size_t i = 0; i < hits.size(); ++i) hits[i] = std::move(ranked[i].second);
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

  Hit user_hit(const ConfigRow& row, bool bucket, bool stored = true) const {
    return {Layer::kUser, stored ? settings.user_path : "", row, bucket};
  }

  std::vector<Hit> exact_hits(const RowKey& key) const {
    std::vector<Hit> hits;
    const auto change = changes.find(key);
    if (change != changes.end()) {
      const auto& [row, stored] = change->second;
      if (row) hits.push_back(user_hit(*row, false, stored));
    } else if (const ConfigRow* row = user.snapshot.find(key)) {
      hits.push_back(user_hit(*row, false));
    }
    for (const LayerFile& file : below) {
      const ConfigRow* row = file.snapshot.find(key);
      if (row != nullptr) hits.push_back({file.status.layer, file.status.path, *row, false});
    }
    return hits;
  }

  std::vector<Hit> bucket_hits(const RowKey& key, const std::string& bucket) const {
    std::vector<Hit> hits;
    for (const ConfigRow* row : user.snapshot.find_bucket(key, bucket)) {
      if (!changes.contains(row->key)) hits.push_back(user_hit(*row, true));
    }
    for (const auto& [changed, change] : changes) {
      if (!change.row || !same_bucket(*change.row, key, bucket)) continue;
      hits.push_back(user_hit(*change.row, true, change.stored));
    }
    for (const LayerFile& file : below) {
      for (const ConfigRow* row : file.snapshot.find_bucket(key, bucket)) {
        hits.push_back({file.status.layer, file.status.path, *row, true});
      }
    }
    std::erase_if(hits, [&](const Hit& hit) { return hit.row.key == key; });
    sort_by_distance(hits, key);
    return hits;
  }

  /// Calls f(row, layer, path) for every row, as it is now.
  template <class F>
  void for_each_row(F&& f) const {
    static const std::string kNoFile;
    for (const ConfigRow& row : user.snapshot.rows) {
      if (!changes.contains(row.key)) f(row, Layer::kUser, settings.user_path);
    }
    for (const auto& [key, change] : changes) {
      if (change.row) f(*change.row, Layer::kUser, change.stored ? settings.user_path : kNoFile);
    }
    for (const LayerFile& file : below) {
      for (const ConfigRow& row : file.snapshot.rows) f(row, file.status.layer, file.status.path);
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
  std::vector<QuarantineRow> quarantine;             // added by this process
};

ConfigStore::ConfigStore(StoreSettings settings)
    : state_(std::make_unique<State>(std::move(settings))) {}
ConfigStore::~ConfigStore() = default;

std::vector<Hit> ConfigStore::find(const RowKey& key, const std::string& bucket) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits = state_->exact_hits(key);
  std::vector<Hit> neighbours = state_->bucket_hits(key, bucket);
  std::move(neighbours.begin(), neighbours.end(), std::back_inserter(hits));
  return hits;
}

std::vector<Hit> ConfigStore::find_nearest(const RowKey& key,
                                           const std::vector<std::string>& scalable,
                                           double octaves) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits;
  for (const auto& [entry, distance] : state_->neighbours_of(key.op, scalable).find(key, octaves)) {
    hits.push_back({entry->layer, *entry->path, *entry->row, false, distance});
  }
  std::stable_sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) {
    return std::tie(a.octaves, a.layer, a.row.key) < std::tie(b.octaves, b.layer, b.row.key);
  });
  return hits;
}

std::vector<Hit> ConfigStore::find_elsewhere(const RowKey& key) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits;
  state_->for_each_row([&](const ConfigRow& row, Layer layer, const std::string& path) {
    const bool same = row.key.op == key.op && row.key.problem == key.problem;
    if (same && row.key != key) hits.push_back({layer, path, row, false});
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
  ConfigSnapshot own;
  own.quarantine = state_->quarantine;
  std::vector<const ConfigSnapshot*> snapshots = {&own, &state_->user.snapshot};
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
  state_->quarantine.push_back(row);
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
