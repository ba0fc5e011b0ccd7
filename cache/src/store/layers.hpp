// The rows of a store: what its files hold, layer by layer, and what this process changed since
// they were read. Nothing here is synchronised.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <attune/cache/config_store.hpp>

#include "store/neighbour_index.hpp"

namespace attune {

/// One file of a store: what was read from it, or why nothing was.
struct LayerFile {
  ConfigStore::FileStatus status;
  ConfigSnapshot snapshot;

  void take(ConfigSnapshot read);
};

/// The databases that a path stands for: itself, or those in the folder it names, by name.
std::vector<std::string> databases_at(const std::string& path);

/// Whether two readings of a file gave the same.
bool same_content(const ConfigSnapshot& a, const ConfigSnapshot& b);

/// Reads a file that is never written. Does not throw: the status says why it is not used.
LayerFile read_layer_file(Layer layer, const std::string& path);

class Layers {
 public:
  using Hit = ConfigStore::Hit;

  /// `user_path` is what hits in the user's database say, even while it is not there.
  explicit Layers(std::string user_path) : user_path_(std::move(user_path)) {
    user.status.path = user_path_;
  }

  LayerFile user;
  std::vector<LayerFile> below;  // site, then shipped

  /// In place of what was read before. Changes that are stored by now are in it.
  void replace_user(LayerFile file);
  /// Gives back what was there before, to be destroyed where nobody waits.
  std::vector<LayerFile> replace_below(std::vector<LayerFile> files);

  /// Whether the user's database, read again, holds just what is known of it here.
  bool user_is_known_as(const ConfigSnapshot& read) const;

  /// What each layer's look-ups see, the user's first.
  std::vector<DatabaseContent> contents() const;

  /// From here on nothing changes: what was there, or `table` in its place, is all there is.
  void freeze(std::optional<DatabaseContent> table);
  bool is_frozen() const { return is_frozen_; }

  /// A row was written, or erased when it is nothing. `stored`: in the user's database too.
  void change(const RowKey& key, std::optional<ConfigRow> row, bool stored);
  /// A candidate was quarantined by this process.
  void quarantine(const QuarantineRow& row);

  // What ConfigStore's functions of these names say.
  std::vector<Hit> find_exact(const RowKey& key) const;
  std::vector<Hit> find_in_bucket(const RowKey& key, const std::string& bucket) const;
  std::vector<Hit> find_nearest(const RowKey& key, const std::vector<std::string>& scalable,
                                double octaves);
  std::vector<Hit> find_elsewhere(const RowKey& key) const;
  std::optional<PinRow> find_pin(const RowKey& key) const;
  std::optional<std::string> quarantined(const RowKey& key, const std::string& kernel,
                                         std::int64_t kernel_version,
                                         const std::string& config) const;
  std::vector<ConfigStore::FileStatus> status() const;

 private:
  /// A row that was written or erased since the user's database was read.
  struct Change {
    std::optional<ConfigRow> row;  // nothing: erased
    bool stored = false;           // in the file too; if not, memory is all there is
  };

  Hit user_hit(const ConfigRow& row, bool stored) const;
  const NeighbourIndex& neighbours_of(const std::string& op,
                                      const std::vector<std::string>& scalable);
  template <class RowsOf, class IsOne, class F>
  void visit_rows(RowsOf&& rows_of, IsOne&& is_one, F&& f) const;

  std::string user_path_;
  std::map<RowKey, Change> changes_;
  std::map<std::string, NeighbourIndex> neighbours_;  // by op; points into the rows above
  ConfigSnapshot quarantined_here_;                   // no rows
  bool is_frozen_ = false;
};

}  // namespace attune
