#include <iterator>
#include <span>
#include <utility>

#include <attune/cache/config_store.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "store/file_signature.hpp"
#include "store/layers.hpp"
#include "store/read_only_files.hpp"

namespace attune {
namespace {

using Hit = ConfigStore::Hit;
using Mode = ConfigDatabase::Mode;

}  // namespace

/// Two locks, so that look-ups never wait for a file: `disk` is held while the user's database is
/// used, `memory` while the layers are. `disk` is taken first where both are needed.
struct ConfigStore::State {
  explicit State(StoreSettings given)
      : settings(std::move(given)), layers(settings.user_path), below(settings, layers, memory) {}

  void load_once() {
    std::call_once(loaded, [this] {
      reload_user();
      user_differs = false;
      below.reload();
    });
  }

  bool is_frozen() {
    const std::lock_guard lock(memory);
    return layers.is_frozen();
  }

  /// The caller holds `disk`.
  bool user_may_have_changed() const {
    if (settings.user_path.empty()) return false;
    if (user_differs) return true;
    const FileSignature now = FileSignature::of(settings.user_path);
    if (database == nullptr) return now != user_as_read;
    try {
      return !now.is_same_file(user_as_read) || database->changes_by_others() != user_changes;
    } catch (const CacheError&) {
      return true;  // reading it again says why
    }
  }

  /// Notes what the database is before it is read.
  void note_user() {
    user_as_read = FileSignature::of(settings.user_path);
    if (database != nullptr) user_changes = database->changes_by_others();
  }

  /// Opens and reads the user's database if there is one, as writable as it can be.
  void reload_user() {
    const std::lock_guard disk_lock(disk);
    database.reset();
    LayerFile file;
    file.status.path = settings.user_path;
    const bool named = !settings.user_path.empty();
    note_user();
    const bool there = named && is_there(settings.user_path);
    may_make = named && !there && !settings.read_only;
    if (there) {
      open_user(file);
    } else {
      file.status.reason = named ? "not there"
                           : default_store_settings().user_path.empty()
                               ? "no user database: neither ATTUNE_DB nor HOME is set"
                               : "no user database: this context is to have none";
    }
    file.status.writable = database != nullptr && database->writable();
    const std::lock_guard lock(memory);
    user_differs = user_differs || !layers.user_is_known_as(file.snapshot);
    layers.replace_user(std::move(file));
  }

  void open_user(LayerFile& file) {
    const Mode best = settings.read_only ? Mode::kRecover : Mode::kReadWrite;
    for (const Mode mode : {best, Mode::kReadOnly}) {
      try {
        database = std::make_unique<ConfigDatabase>(settings.user_path, mode);
        if (mode == Mode::kReadWrite) blame_suspects();
        note_user();
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

  /// Quarantines what was running when a process ended or the machine went down.
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
        note_user();
        const std::lock_guard lock(memory);
        layers.user.status.used = layers.user.status.writable = true;
        layers.user.status.reason.clear();
      } catch (const CacheError& error) {
        const std::lock_guard lock(memory);
        layers.user.status.reason = error.what();
      }
    }
    if (database != nullptr && database->writable()) return database.get();
    const std::lock_guard lock(memory);
    reason = settings.read_only ? "the user's database is opened for reading only"
                                : layers.user.status.reason;
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

  const StoreSettings settings;
  std::once_flag loaded;

  std::mutex disk;
  std::unique_ptr<ConfigDatabase> database;  // the user's
  bool may_make = false;                     // it is not there, and may be made
  FileSignature user_as_read;
  std::int64_t user_changes = 0;  // ConfigDatabase::changes_by_others() when it was read
  bool user_differs = false;      // it was read again, and reload() has not told of it

  std::mutex reloading;  // held by reload(), before `disk`

  std::mutex memory;
  Layers layers;
  ReadOnlyFiles below;
};

ConfigStore::ConfigStore(StoreSettings settings)
    : state_(std::make_unique<State>(std::move(settings))) {}
ConfigStore::~ConfigStore() = default;

std::vector<Hit> ConfigStore::find(const RowKey& key, const std::string& bucket) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  std::vector<Hit> hits = state_->layers.find_exact(key);
  if (bucket.empty()) return hits;
  std::vector<Hit> neighbours = state_->layers.find_in_bucket(key, bucket);
  std::move(neighbours.begin(), neighbours.end(), std::back_inserter(hits));
  return hits;
}

std::vector<Hit> ConfigStore::find_nearest(const RowKey& key,
                                           const std::vector<std::string>& scalable,
                                           double octaves) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.find_nearest(key, scalable, octaves);
}

std::vector<Hit> ConfigStore::find_elsewhere(const RowKey& key) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.find_elsewhere(key);
}

std::optional<PinRow> ConfigStore::find_pin(const RowKey& key) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.find_pin(key);
}

std::optional<std::string> ConfigStore::quarantined(const RowKey& key, const std::string& kernel,
                                                    std::int64_t kernel_version,
                                                    const std::string& config) const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.quarantined(key, kernel, kernel_version, config);
}

std::unique_ptr<SuspectNote> ConfigStore::note_suspects(AtRisk at_risk) {
  const bool writes = !state_->settings.read_only;
  return std::make_unique<SuspectNote>(writes ? state_->settings.user_path : "", at_risk);
}

std::string ConfigStore::put(const ConfigRow& row, std::span<const TrialRow> trials) {
  std::string reason =
      state_->write(State::IfAbsent::kMake, [&](ConfigDatabase& db) { db.put(row, trials); });
  const std::lock_guard lock(state_->memory);
  state_->layers.change(row.key, row, reason.empty());
  return reason;
}

void ConfigStore::erase(const RowKey& key) {
  const std::string reason =
      state_->write(State::IfAbsent::kNothingToDo, [&](ConfigDatabase& db) { db.erase(key); });
  const std::lock_guard lock(state_->memory);
  state_->layers.change(key, std::nullopt, reason.empty());
}

void ConfigStore::quarantine(const QuarantineRow& row) {
  state_->write(State::IfAbsent::kMake, [&](ConfigDatabase& db) { db.quarantine(row); });
  const std::lock_guard lock(state_->memory);
  state_->layers.quarantine(row);
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
  if (state_->is_frozen()) return;
  state_->reload_user();
}

std::vector<DatabaseContent> ConfigStore::contents() const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.contents();
}

void ConfigStore::freeze(std::optional<DatabaseContent> table) {
  state_->load_once();
  const std::lock_guard reloading(state_->reloading);  // one that has begun ends first
  const std::lock_guard disk(state_->disk);
  const std::lock_guard lock(state_->memory);
  state_->layers.freeze(std::move(table));
}

bool ConfigStore::stores() const {
  state_->load_once();
  const std::lock_guard disk(state_->disk);
  std::string reason;
  return state_->writer(reason) != nullptr;
}

bool ConfigStore::may_have_changed() const {
  state_->load_once();
  const std::lock_guard reloading(state_->reloading);
  if (state_->is_frozen()) return false;
  if (state_->below.may_have_changed()) return true;
  const std::lock_guard disk(state_->disk);
  return state_->user_may_have_changed();
}

std::vector<std::string> ConfigStore::reload() {
  state_->load_once();
  const std::lock_guard reloading(state_->reloading);
  if (state_->is_frozen()) return {};
  std::vector<std::string> changed = state_->below.reload();
  std::unique_lock disk(state_->disk);
  if (!state_->user_may_have_changed()) return changed;
  disk.unlock();
  state_->reload_user();
  disk.lock();
  if (std::exchange(state_->user_differs, false)) changed.push_back(state_->settings.user_path);
  return changed;
}

std::vector<ConfigStore::FileStatus> ConfigStore::status() const {
  state_->load_once();
  const std::lock_guard lock(state_->memory);
  return state_->layers.status();
}

const StoreSettings& ConfigStore::settings() const { return state_->settings; }

}  // namespace attune
