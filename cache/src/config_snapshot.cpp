#include <attune/cache/config_database.hpp>

namespace attune {
namespace {

RowKey bucket_key(RowKey key, const std::string& bucket) {
  key.problem = bucket;
  return key;
}

}  // namespace

void ConfigSnapshot::index() {
  by_key_.clear();
  by_bucket_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) by_key_.emplace(rows[i].key, i);
  // In the order of the keys, which a multimap keeps among equals.
  for (const auto& [key, i] : by_key_) by_bucket_.emplace(bucket_key(key, rows[i].bucket), i);
}

const ConfigRow* ConfigSnapshot::find(const RowKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &rows[found->second];
}

std::vector<const ConfigRow*> ConfigSnapshot::find_bucket(const RowKey& key,
                                                          const std::string& bucket) const {
  std::vector<const ConfigRow*> found;
  const auto [first, last] = by_bucket_.equal_range(bucket_key(key, bucket));
  for (auto entry = first; entry != last; ++entry) found.push_back(&rows[entry->second]);
  return found;
}

const PinRow* ConfigSnapshot::find_pin(const RowKey& key, std::int64_t now) const {
  for (const PinRow& pin : pins) {
    if (pin.key == key && (pin.expires == 0 || now < pin.expires)) return &pin;
  }
  return nullptr;
}

const QuarantineRow* ConfigSnapshot::find_quarantine(const RowKey& key, const std::string& kernel,
                                                     std::int64_t kernel_version,
                                                     const std::string& config) const {
  for (const QuarantineRow& row : quarantine) {
    const bool same_problem = row.problem.empty() || row.problem == key.problem;
    if (same_problem && row.op == key.op && row.device_class == key.device_class &&
        row.kernel == kernel && row.kernel_version == kernel_version && row.config == config) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace attune
