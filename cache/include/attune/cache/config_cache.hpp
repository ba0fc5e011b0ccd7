// The memory tier: choices by key, found in nanoseconds.
//
// Reading takes no lock and allocates nothing: an open-addressing table whose slots are published
// with release stores; the key is hashed (XXH3) and compared as plain words. Writing takes a mutex.
// A replaced entry is kept until the cache is destroyed, since a reader may still hold it; entries
// are replaced only by a tune, a pin or forget(). clear() puts an empty table in the place of the
// whole: readers see the old one or the new one. What is then put again as it was is not copied.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <attune/core/selection.hpp>

namespace attune {

class ConfigCache {
 public:
  /// Keys past `max_entries` are not kept: each of their calls goes on to the next tiers.
  explicit ConfigCache(std::size_t max_entries = std::size_t{1} << 20U);
  ~ConfigCache();
  ConfigCache(const ConfigCache&) = delete;
  ConfigCache& operator=(const ConfigCache&) = delete;

  /// The choice stored under `key`, or nullptr. Valid as long as the cache.
  const Choice* find(const SelectionKey& key) const noexcept;

  /// Stores or replaces. False when the cache is full.
  bool put(const SelectionKey& key, const Choice& choice);

  /// False when the key was not there.
  bool erase(const SelectionKey& key);
  void clear();

  std::size_t size() const;
  std::vector<SelectionKey> keys() const;

 private:
  struct Table;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
