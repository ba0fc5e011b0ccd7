// The databases of the site and the installation: read, and read again where they have changed.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/file_signature.hpp"
#include "store/layers.hpp"

namespace attune {

/// Puts what it reads into `layers`, under `memory`. One thread at a time uses it.
class ReadOnlyFiles {
 public:
  ReadOnlyFiles(const StoreSettings& settings, Layers& layers, std::mutex& memory)
      : settings_(settings), layers_(layers), memory_(memory) {}

  bool may_have_changed() const;

  /// Reads what is new or has changed. Returns the files whose rows are others by now.
  std::vector<std::string> reload();

 private:
  struct Place {
    Layer layer;
    std::string path;
  };
  std::vector<Place> places() const;
  LayerFile* known(const std::string& path) const;
  std::optional<LayerFile> changed_file(const Place& place, FileSignature& signature,
                                        std::vector<std::string>& changed) const;
  void put(const std::vector<Place>& places, std::vector<std::optional<LayerFile>> files);

  const StoreSettings& settings_;
  Layers& layers_;
  std::mutex& memory_;
  std::map<std::string, FileSignature> as_read_;  // by path
};

}  // namespace attune
