// A folder that is gone afterwards.
#pragma once

#include <string>

namespace attune::cli {

class ScratchFolder {
 public:
  /// A new folder in TMPDIR or /tmp. Throws ExecutionError.
  explicit ScratchFolder(const std::string& prefix);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

}  // namespace attune::cli
