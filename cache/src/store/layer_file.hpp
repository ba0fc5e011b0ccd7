// One file of a store: what was read from it, or why nothing was.
#pragma once

#include <string>
#include <vector>

#include <attune/cache/config_store.hpp>

namespace attune {

struct LayerFile {
  ConfigStore::FileStatus status;
  ConfigSnapshot snapshot;

  void take(ConfigSnapshot read);
};

/// The databases that a path stands for: itself, or those in the folder it names, by name.
std::vector<std::string> databases_at(const std::string& path);

/// Reads a file that is never written. Does not throw: the status says why it is not used.
LayerFile read_layer_file(Layer layer, const std::string& path);

}  // namespace attune
