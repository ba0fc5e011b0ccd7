#include "process/scratch_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <attune/core/error.hpp>

namespace attune::cli {

ScratchFolder::ScratchFolder(const std::string& prefix) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  path_ = (error ? std::filesystem::path("/tmp") : parent) / (prefix + "XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr)
    throw ExecutionError(str(path_, ": ", std::strerror(errno)));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // what cannot be removed is left to whoever cleans the temporary folder
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace attune::cli
