#include "store/read_only_files.hpp"

#include <algorithm>
#include <utility>

#include <attune/core/log.hpp>

namespace attune {

/// As they are now.
std::vector<ReadOnlyFiles::Place> ReadOnlyFiles::places() const {
  std::vector<Place> places;
  const auto add = [&](Layer layer, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      if (layer == Layer::kShipped && !is_there(path)) continue;
      for (std::string& file : databases_at(path)) {
        const bool is_known =
            std::ranges::any_of(places, [&](const Place& place) { return place.path == file; });
        if (!is_known) places.push_back({layer, std::move(file)});
      }
    }
  };
  add(Layer::kSite, settings_.site_paths);
  add(Layer::kShipped, settings_.shipped_paths);
  return places;
}

bool ReadOnlyFiles::may_have_changed() const {
  const std::vector<Place> now = places();
  return now.size() != as_read_.size() || std::ranges::any_of(now, [&](const Place& place) {
           const auto before = as_read_.find(place.path);
           return before == as_read_.end() || before->second != FileSignature::of(place.path);
         });
}

/// What was read of a file before, or null. Only reload() changes it.
LayerFile* ReadOnlyFiles::known(const std::string& path) const {
  const auto found = std::ranges::find_if(
      layers_.below, [&](const LayerFile& file) { return file.status.path == path; });
  return found == layers_.below.end() ? nullptr : &*found;
}

/// A file that is new or another one than before, `signature`'s, and whose rows are others. Nothing
/// where what is known of it stays.
std::optional<LayerFile> ReadOnlyFiles::changed_file(const Place& place, FileSignature& signature,
                                                     std::vector<std::string>& changed) const {
  const LayerFile* const before = known(place.path);
  const auto read = as_read_.find(place.path);
  if (before != nullptr && read != as_read_.end() && read->second == signature) return {};
  LayerFile file = read_layer_file(place.layer, place.path);
  const bool keeps =
      before != nullptr && before->status.used && !file.status.used && is_there(place.path);
  if (!file.status.used) {
    log_once(LogLevel::kWarning,
             str(file.status.reason, keeps ? "; its rows of before are used" : "; it is not used"));
  }
  if (keeps) {
    signature = {};  // looked at again the next time
    return {};
  }
  if (before == nullptr || !same_content(before->snapshot, file.snapshot)) {
    changed.push_back(place.path);
  }
  return file;
}

std::vector<std::string> ReadOnlyFiles::reload() {
  std::vector<std::string> changed;
  std::map<std::string, FileSignature> as_read;
  std::vector<std::optional<LayerFile>> files;
  const std::vector<Place> now = places();
  for (const Place& place : now) {
    FileSignature& signature = as_read[place.path] = FileSignature::of(place.path);
    files.push_back(changed_file(place, signature, changed));  // signed before it is read
  }
  for (const auto& [path, signature] : as_read_) {
    if (!as_read.contains(path)) changed.push_back(path);
  }
  as_read_ = std::move(as_read);
  put(now, std::move(files));
  return changed;
}

void ReadOnlyFiles::put(const std::vector<Place>& places,
                        std::vector<std::optional<LayerFile>> files) {
  std::vector<LayerFile> next, before;  // destroyed where nobody waits
  const std::lock_guard lock(memory_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    next.push_back(files[i] ? *std::move(files[i]) : std::move(*known(places[i].path)));
  }
  before = layers_.replace_below(std::move(next));
}

}  // namespace attune
