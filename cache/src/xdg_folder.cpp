#include "xdg_folder.hpp"

#include <cstdlib>
#include <filesystem>

namespace attune {
namespace {

namespace fs = std::filesystem;

/// The folder that a variable names; the specification has relative ones ignored.
fs::path folder_from_environment(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr || *value != '/') return {};
  return value;
}

std::string attune_folder(const char* variable, const fs::path& below_home) {
  fs::path folder = folder_from_environment(variable);
  if (folder.empty()) {
    const fs::path home = folder_from_environment("HOME");
    if (home.empty()) return {};
    folder = home / below_home;
  }
  return (folder / "attune").string();
}

}  // namespace

std::string user_data_folder() {
  return attune_folder("XDG_DATA_HOME", fs::path(".local") / "share");
}
std::string user_cache_folder() { return attune_folder("XDG_CACHE_HOME", ".cache"); }

}  // namespace attune
