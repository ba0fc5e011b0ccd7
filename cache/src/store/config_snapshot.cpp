#include <algorithm>
#include <numeric>
#include <tuple>

#include <attune/cache/config_database.hpp>

#include "content/content.hpp"

namespace attune {
namespace {

RowKey bucket_key(RowKey key, const std::string& bucket) {
  key.problem = bucket;
  return key;
}

auto problem_of(const ConfigRow& row) { return std::tie(row.key.op, row.key.problem); }

/// The indices of `rows`, sorted by what key_of() gives of a row.
template <class Row, class KeyOf>
std::vector<std::size_t> sorted_indices(const std::vector<Row>& rows, KeyOf key_of) {
  std::vector<std::size_t> indices(rows.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::sort(indices.begin(), indices.end(),
            [&](std::size_t a, std::size_t b) { return key_of(rows[a]) < key_of(rows[b]); });
  return indices;
}

/// The rows, of those that the sorted indices name, whose key is `key`.
template <class Row, class KeyOf, class Key>
std::vector<const Row*> rows_of_key(const std::vector<Row>& rows,
                                    const std::vector<std::size_t>& indices, KeyOf key_of,
                                    const Key& key) {
  std::vector<const Row*> found;
  auto index = std::lower_bound(indices.begin(), indices.end(), key,
                                [&](std::size_t i, const Key& k) { return key_of(rows[i]) < k; });
  for (; index != indices.end() && !(key < key_of(rows[*index])); ++index) {
    found.push_back(&rows[*index]);
  }
  return found;
}

}  // namespace

void ConfigSnapshot::index() {
  by_key_.clear();
  by_bucket_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) by_key_.emplace(rows[i].key, i);
  // In the order of the keys, which a multimap keeps among equals.
  for (const auto& [key, i] : by_key_) by_bucket_.emplace(bucket_key(key, rows[i].bucket), i);
  rows_by_problem_ = sorted_indices(rows, [](const ConfigRow& row) {
    return std::tuple_cat(problem_of(row), std::tie(row.key));
  });
  pins_by_key_ = sorted_indices(pins, [](const PinRow& pin) { return std::tie(pin.key); });
  quarantine_by_key_ =
      sorted_indices(quarantine, [](const QuarantineRow& row) { return content_key(row); });
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

std::vector<const ConfigRow*> ConfigSnapshot::find_problem(const std::string& op,
                                                           const std::string& problem) const {
  return rows_of_key(rows, rows_by_problem_, problem_of, std::tie(op, problem));
}

const PinRow* ConfigSnapshot::find_pin(const RowKey& key, std::int64_t now) const {
  const auto key_of = [](const PinRow& pin) { return std::tie(pin.key); };
  for (const PinRow* pin : rows_of_key(pins, pins_by_key_, key_of, std::tie(key))) {
    if (pin->expires == 0 || now < pin->expires) return pin;
  }
  return nullptr;
}

const QuarantineRow* ConfigSnapshot::find_quarantine(const RowKey& key, const std::string& kernel,
                                                     std::int64_t kernel_version,
                                                     const std::string& config) const {
  static const std::string kEveryProblem;
  const auto key_of = [](const QuarantineRow& row) { return content_key(row); };
  for (const std::string* problem : {&key.problem, &kEveryProblem}) {
    const auto found =
        rows_of_key(quarantine, quarantine_by_key_, key_of,
                    std::tie(key.op, key.device_class, kernel, kernel_version, config, *problem));
    if (!found.empty()) return found.front();
  }
  return nullptr;
}

}  // namespace attune
