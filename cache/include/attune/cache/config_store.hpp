// The persistent tier: the user's database, and the site's and shipped ones below it.
//
// No file is ever fatal. One that cannot be used is skipped with its reason (log, and status());
// one that cannot be written is read, and tunings are then kept in memory for the life of the
// process, with one warning.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <attune/cache/config_database.hpp>
#include <attune/cache/suspect_note.hpp>

namespace attune {

struct StoreSettings {
  std::string user_path;                // "": no user database
  std::vector<std::string> site_paths;  // files, or folders of *.db
  std::vector<std::string> shipped_paths;
  /// Nothing is stored in the user's database, and none is made. What an interrupted writer left in
  /// it is undone all the same (ConfigDatabase::Mode::kRecover).
  bool read_only = false;
};

/// The settings of this process:
///
///   user     ATTUNE_DB, else $XDG_DATA_HOME/attune/attune.db, else ~/.local/share/attune/attune.db
///   site     ATTUNE_SYSTEM_DB_PATH, a list separated by colons
///   shipped  share/attune/db.d of the installation
StoreSettings default_store_settings();

class ConfigStore {
 public:
  struct Hit {
    Layer layer = Layer::kUser;
    std::string path;  // "": the row could not be written, and is in memory only
    ConfigRow row;
    bool bucket = false;  // of a neighbour in the same bucket, not of this problem
    double octaves = 0;   // of find_nearest(): how far the row's problem is
  };
  struct FileStatus {
    Layer layer = Layer::kUser;
    std::string path;
    bool used = false;
    bool writable = false;
    std::string reason;  // why it is not used, or not written
    std::int64_t rows = 0;
    std::int64_t bad_rows = 0;
  };

  explicit ConfigStore(StoreSettings settings);
  ~ConfigStore();
  ConfigStore(const ConfigStore&) = delete;
  ConfigStore& operator=(const ConfigStore&) = delete;

  /// The most rows of other problems that one look-up gives.
  static constexpr std::size_t kMostNeighbours = 32;

  /// Rows that may serve the key: exact ones first (user, site, shipped), then those of the
  /// bucket, nearest problem first, ties by key; an empty `bucket` has none. Ranking beyond that
  /// needs the kernels and is the chain's.
  std::vector<Hit> find(const RowKey& key, const std::string& bucket) const;
  /// Rows of problems that differ from the key's in the fields `scalable` alone, by at most
  /// `octaves` in all (the sum of |log2| of their ratios); nearest first, ties by layer and key. A
  /// 0 is near nothing but 0.
  std::vector<Hit> find_nearest(const RowKey& key, const std::vector<std::string>& scalable,
                                double octaves) const;
  /// Rows of the same op and problem for other devices or another platform, to explain a miss.
  std::vector<Hit> find_elsewhere(const RowKey& key) const;
  std::optional<PinRow> find_pin(const RowKey& key) const;
  /// Why a candidate must not be tried, or nothing.
  std::optional<std::string> quarantined(const RowKey& key, const std::string& kernel,
                                         std::int64_t kernel_version,
                                         const std::string& config) const;

  /// Writes to the user's database, or keeps the row in memory when it cannot. Returns why it was
  /// not written, or "".
  std::string put(const ConfigRow& row, std::span<const TrialRow> trials);
  void erase(const RowKey& key);
  void quarantine(const QuarantineRow& row);

  /// A note beside the user's database, for candidates that are about to run.
  std::unique_ptr<SuspectNote> note_suspects(AtRisk at_risk);

  /// A lease over processes; true as well when there is no writable database to share it by.
  bool acquire_lease(const RowKey& key, std::int64_t seconds);
  void release_lease(const RowKey& key);

  /// Reads the user's database again: another process may have tuned meanwhile.
  void reload_user();

  /// Whether a database may hold something else than was read from it: one was replaced, written to
  /// by somebody else, added to a folder or removed. Looks at the files and reads none.
  bool may_have_changed() const;

  /// Reads the databases again that may have changed. Look-ups go on meanwhile, and see all of a
  /// file's old rows or all of its new ones. A site's or shipped file that was read before and
  /// cannot be read now, as while somebody copies over it, keeps its rows, with one warning, until
  /// it can.
  /// Returns the files whose rows are others than before.
  std::vector<std::string> reload();

  /// What look-ups see: the user's layer with what this process changed, then each site's and
  /// shipped file in their order. Without trials.
  std::vector<DatabaseContent> contents() const;

  /// From here on look-ups see what they see now, or `table` alone where one is given, whatever is
  /// stored or the files hold: reload() and reload_user() do nothing. There is no way back.
  void freeze(std::optional<DatabaseContent> table = {});

  /// Whether put() writes to the user's database: there is one that may be written, made now if
  /// not.
  bool stores() const;

  std::vector<FileStatus> status() const;
  const StoreSettings& settings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
