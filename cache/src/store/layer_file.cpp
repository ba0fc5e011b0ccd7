#include "store/layer_file.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

namespace attune {

namespace fs = std::filesystem;

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
    log_once(LogLevel::kWarning, str("config database ", status.path, ": ", status.bad_rows,
                                     " damaged or illegal rows are left out"));
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
    log_once(LogLevel::kWarning, str(error.what(), "; it is not used"));
  }
  return file;
}

}  // namespace attune
