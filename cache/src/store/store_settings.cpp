#include <dlfcn.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include <attune/cache/config_store.hpp>
#include <attune/core/environment.hpp>

#include "xdg_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

std::string user_path() {
  if (const auto given = read_environment("ATTUNE_DB")) {
    std::error_code error;
    const fs::path full = fs::absolute(*given, error);  // the current folder may change later
    return error ? *given : full.string();
  }
  const std::string folder = user_data_folder();
  return folder.empty() ? folder : folder + "/attune.db";
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (end > 0) parts.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

/// The file that this code was loaded from: libattune.so, or a program that holds the static
/// library.
fs::path own_file() {
  std::error_code error;
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&default_store_settings), &info) != 0;
  // Of a program, dladdr() knows only what it was called by, which need not be a path.
  if (found && info.dli_fname != nullptr && *info.dli_fname == '/') {
    return fs::canonical(info.dli_fname, error);
  }
  return fs::read_symlink("/proc/self/exe", error);
}

/// share/attune/db.d beside lib/, bin/ or lib/<architecture>/; nothing when it is not there.
std::vector<std::string> shipped_paths() {
  fs::path folder = own_file().parent_path();
  for (int level = 0; level < 2 && folder.has_relative_path(); ++level) {
    folder = folder.parent_path();
    const fs::path shipped = folder / "share" / "attune" / "db.d";
    std::error_code error;
    if (fs::is_directory(shipped, error)) return {shipped.string()};
  }
  return {};
}

}  // namespace

StoreSettings default_store_settings() {
  return {user_path(), split(read_environment("ATTUNE_SYSTEM_DB_PATH").value_or("")),
          shipped_paths(), false};
}

}  // namespace attune
