#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <type_traits>

#include <attune/cache/config_cache.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace attune {
namespace {

// The used words of a key are one run of bytes: op, device, platform, what choices are bound by,
// then the first `count` values.
static_assert(std::is_standard_layout_v<SelectionKey>);
static_assert(std::has_unique_object_representations_v<SelectionKey>);
constexpr std::size_t kValuesOffset =
    offsetof(SelectionKey, problem) + offsetof(FieldValues, values);
static_assert(kValuesOffset == 5 * sizeof(std::uint64_t) + sizeof(ShortName));

std::size_t used_bytes(const SelectionKey& key) {
  return kValuesOffset + key.problem.count * sizeof(std::int64_t);
}

std::uint64_t hash_of(const SelectionKey& key) { return XXH3_64bits(&key, used_bytes(key)); }

bool same_key(const SelectionKey& a, const SelectionKey& b) {
  return a.problem.count == b.problem.count && std::memcmp(&a, &b, used_bytes(a)) == 0;
}

/// Never changed once a slot points to it.
struct Entry {
  SelectionKey key;
  Choice choice;
  bool erased = false;
};

/// Within one table a slot belongs to the first key it was given: `hash` is written before `entry`
/// is published and never again, so that a reader who sees the entry may read it.
struct Slot {
  std::uint64_t hash = 0;
  std::atomic<const Entry*> entry{nullptr};
};

/// Bytes of a config that have no meaning may differ; then the two count as different, which is
/// only not the least that could be kept.
bool same_choice(const Choice& a, const Choice& b) {
  return a.kernel == b.kernel && a.config.bytes == b.config.bytes && a.tier == b.tier &&
         a.origin == b.origin && a.bucket_hit == b.bucket_hit && a.stale == b.stale &&
         a.prepared == b.prepared;
}

constexpr std::size_t kLeastCapacity = 64;

}  // namespace

struct ConfigCache::Table {
  explicit Table(std::size_t capacity)
      : mask(capacity - 1), slots(std::make_unique<Slot[]>(capacity)) {}

  /// The key's slot and entry; or the empty slot where it would go, and nullptr. A reader takes the
  /// entry from here and does not load the slot again: an empty slot may have become another key's.
  /// Tables are at most half full, so the search ends.
  struct Place {
    Slot& slot;
    const Entry* entry;
  };
  Place place_of(const SelectionKey& key, std::uint64_t hash) const {
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      Slot& slot = slots[i];
      const Entry* entry = slot.entry.load(std::memory_order_acquire);
      const bool ends = entry == nullptr || (slot.hash == hash && same_key(entry->key, key));
      if (ends) return {slot, entry};
    }
  }

  void insert(const Entry& entry, std::uint64_t hash) {
    Slot& slot = place_of(entry.key, hash).slot;
    slot.hash = hash;
    slot.entry.store(&entry, std::memory_order_release);
    ++used;
  }

  std::size_t mask;
  std::size_t used = 0;  // slots that belong to a key, erased ones too; for writers
  std::unique_ptr<Slot[]> slots;
};

struct ConfigCache::State {
  explicit State(std::size_t limit) : max_entries(limit) { publish(kLeastCapacity); }

  /// An entry for the key: that of the table that was put away, if it says the same.
  const Entry& entry_for(const SelectionKey& key, std::uint64_t hash, const Choice& choice) {
    if (cleared != nullptr) {
      const Entry* before = cleared->place_of(key, hash).entry;
      if (before != nullptr && !before->erased && same_choice(before->choice, choice)) {
        return *before;
      }
    }
    return entries.emplace_back(Entry{key, choice, false});
  }

  /// A new table with the live entries of the current one.
  void publish(std::size_t capacity) {
    auto next = std::make_unique<Table>(capacity);
    for_each_live([&](const Slot& slot, const Entry& entry) { next->insert(entry, slot.hash); });
    tables.push_back(std::move(next));
    table.store(tables.back().get(), std::memory_order_release);
  }

  template <class Visit>
  void for_each_live(Visit&& visit) const {
    if (tables.empty()) return;
    const Table& current = *tables.back();
    for (std::size_t i = 0; i <= current.mask; ++i) {
      const Entry* entry = current.slots[i].entry.load(std::memory_order_relaxed);
      if (entry != nullptr && !entry->erased) visit(current.slots[i], *entry);
    }
  }

  const std::size_t max_entries;
  std::atomic<const Table*> table{nullptr};

  // The rest is for writers alone. Nothing is freed: a reader may be in an old table, or hold an
  // old choice.
  mutable std::mutex mutex;
  std::size_t live = 0;
  std::deque<Entry> entries;
  const Table* cleared = nullptr;              // the one that clear() put away last
  std::vector<std::unique_ptr<Table>> tables;  // the last one is published
};

ConfigCache::ConfigCache(std::size_t max_entries) : state_(std::make_unique<State>(max_entries)) {}
ConfigCache::~ConfigCache() = default;

const Choice* ConfigCache::find(const SelectionKey& key) const noexcept {
  const Table& table = *state_->table.load(std::memory_order_acquire);
  const Entry* entry = table.place_of(key, hash_of(key)).entry;
  return entry == nullptr || entry->erased ? nullptr : &entry->choice;
}

bool ConfigCache::put(const SelectionKey& key, const Choice& choice) {
  const std::uint64_t hash = hash_of(key);
  const std::lock_guard lock(state_->mutex);
  const auto [slot, old] = state_->tables.back()->place_of(key, hash);
  const bool is_new = old == nullptr || old->erased;
  if (is_new && state_->live >= state_->max_entries) return false;

  if (old == nullptr && 2 * (state_->tables.back()->used + 1) > state_->tables.back()->mask + 1) {
    state_->publish(std::max(kLeastCapacity, std::bit_ceil(4 * (state_->live + 1))));
  }
  const Entry& entry = state_->entry_for(key, hash, choice);
  if (old == nullptr) {
    state_->tables.back()->insert(entry, hash);
  } else {
    slot.entry.store(&entry, std::memory_order_release);
  }
  state_->live += is_new ? 1 : 0;
  return true;
}

bool ConfigCache::erase(const SelectionKey& key) {
  const std::lock_guard lock(state_->mutex);
  const auto [slot, old] = state_->tables.back()->place_of(key, hash_of(key));
  if (old == nullptr || old->erased) return false;
  const Entry& tombstone = state_->entries.emplace_back(Entry{key, {}, true});
  slot.entry.store(&tombstone, std::memory_order_release);
  --state_->live;
  return true;
}

void ConfigCache::clear() {
  const std::lock_guard lock(state_->mutex);
  if (state_->live == 0) return;
  state_->cleared = state_->tables.back().get();
  state_->tables.push_back(std::make_unique<Table>(kLeastCapacity));
  state_->table.store(state_->tables.back().get(), std::memory_order_release);
  state_->live = 0;
}

std::size_t ConfigCache::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live;
}

std::vector<SelectionKey> ConfigCache::keys() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<SelectionKey> keys;
  keys.reserve(state_->live);
  state_->for_each_live([&](const Slot&, const Entry& entry) { keys.push_back(entry.key); });
  return keys;
}

}  // namespace attune
