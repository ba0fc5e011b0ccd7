// Artifacts on disk: what kernels compiled at run time, kept for the next process.
//
// A folder of files, one an artifact, named by a hash of its key:
//
//   <folder>/3f/3fa2...c1.artifact     "attune artifact 1\n", sizes, checksum, the key, the bytes
//
// A file counts only if it is whole: its key is the one that was asked for and its checksum holds.
// Any number of processes share a folder: files come into place by a rename, so that a reader finds
// all of one or none. When the files together grow beyond the bound, those that were used longest
// ago are removed. A folder may be deleted at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <attune/core/prepared_kernel.hpp>

namespace attune {

class ArtifactCache final : public Artifacts {
 public:
  /// Nothing is made before something is kept. `folder` "": nothing is found, and nothing kept.
  ArtifactCache(std::string folder, std::uint64_t most_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  /// Nothing when it is not there, or is damaged: such a file is removed.
  std::optional<std::string> find(std::string_view key) const override;

  /// Whether it was kept: not where no folder can be made or the disk is full, which is said once
  /// in the log, nor what is larger than the bound.
  bool try_to_keep(std::string_view key, std::string_view bytes) const;
  void keep(std::string_view key, std::string_view bytes) const override {
    try_to_keep(key, bytes);
  }

  const std::string& folder() const { return folder_; }
  std::uint64_t most_bytes() const { return most_bytes_; }

 private:
  std::string path_of(std::string_view key) const;
  void remove_oldest() const;

  std::string folder_;
  std::uint64_t most_bytes_;
  mutable std::atomic<bool> told_ = false;  // that something could not be kept
};

/// This process's:
///
///   folder   ATTUNE_CACHE_DIR ("none": no folder), else $XDG_CACHE_HOME/attune, else ~/.cache/attune
///   bound    ATTUNE_CACHE_BYTES, else 1 GiB
const ArtifactCache& default_artifact_cache();

}  // namespace attune
