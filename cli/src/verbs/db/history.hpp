// Generations of a database: every content that `attune db use` put in place, numbered, each a
// read-only database in the folder FILE.history beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <attune/cache/database_content.hpp>

namespace attune::cli {

class History {
 public:
  /// `file` need not have one, nor be there.
  explicit History(std::string file);

  struct Generation {
    std::int64_t number = 0;
    std::string path;
    std::int64_t saved = 0;  // seconds since 1970
    std::string damage;      // why it cannot be read, or ""
    DatabaseContent content;
  };

  const std::string& folder() const { return folder_; }
  /// Whether contents of this file are kept: `attune db use` was called for it.
  bool exists() const;
  /// In the order of their numbers.
  std::vector<Generation> generations() const;

  /// Keeps a content as a further generation, unless one has it; then the number of that one is
  /// given. Makes the folder. Throws CacheError when it cannot be written.
  std::int64_t keep(const DatabaseContent& content) const;

  /// Removes the oldest so that `count` are left; that of `in_use` stays in any case.
  void prune(std::size_t count, std::int64_t in_use) const;

 private:
  std::string folder_;
};

/// What a database file holds, nothing when it is not there. Throws CacheError for one that cannot
/// be read, or has damaged rows.
DatabaseContent sound_content(const std::string& path);

}  // namespace attune::cli
