#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <attune/cache/database_content.hpp>

#include "content/content.hpp"

namespace attune {
namespace {

/// "1.12.3" as numbers that compare; what is not a number counts as 0.
std::array<int, 3> release_of(std::string_view version) {
  std::array<int, 3> release{};
  for (int& part : release) {
    const std::string_view text = version.substr(0, version.find('.'));
    std::from_chars(text.data(), text.data() + text.size(), part);
    version.remove_prefix(std::min(version.size(), text.size() + 1));
  }
  return release;
}

auto rank(const ConfigRow& row) {
  return std::tuple(row.noise != NoiseGrade::kC, release_of(row.library_version),
                    row.default_us / row.median_us, -static_cast<int>(row.noise), row.samples,
                    row.created);
}

bool is_kept(const StoredDecision& a, const StoredDecision& b) {
  if (outranks(a.row, b.row)) return true;
  return a.row == b.row && a.trials > b.trials;
}

bool is_kept(const PinRow& a, const PinRow& b) {
  return std::tie(a.created, a) > std::tie(b.created, b);
}

bool is_kept(const QuarantineRow& a, const QuarantineRow& b) {
  return std::tie(a.created, a) > std::tie(b.created, b);
}

template <class Row>
std::vector<Row> merge_rows(const std::vector<Row>& a, const std::vector<Row>& b) {
  std::map<std::decay_t<decltype(content_key(a.front()))>, const Row*> kept;
  for (const std::vector<Row>* rows : {&a, &b}) {
    for (const Row& row : *rows) {
      const Row*& best = kept[content_key(row)];
      if (best == nullptr || is_kept(row, *best)) best = &row;
    }
  }
  std::vector<Row> merged;
  merged.reserve(kept.size());
  for (const auto& [key, row] : kept) merged.push_back(*row);
  return merged;
}

}  // namespace

void DatabaseContent::sort() {
  const auto by_key = [](const auto& a, const auto& b) { return content_key(a) < content_key(b); };
  std::sort(decisions.begin(), decisions.end(), by_key);
  std::sort(pins.begin(), pins.end(), by_key);
  std::sort(quarantine.begin(), quarantine.end(), by_key);
}

bool outranks(const ConfigRow& a, const ConfigRow& b) {
  const auto rank_a = rank(a);
  const auto rank_b = rank(b);
  return rank_a != rank_b ? rank_a > rank_b : a > b;
}

DatabaseContent merge(const DatabaseContent& a, const DatabaseContent& b) {
  DatabaseContent merged;
  merged.decisions = merge_rows(a.decisions, b.decisions);
  merged.pins = merge_rows(a.pins, b.pins);
  merged.quarantine = merge_rows(a.quarantine, b.quarantine);
  merged.bad_rows = a.bad_rows + b.bad_rows;
  merged.bad_reasons = a.bad_reasons;
  merged.bad_reasons.insert(merged.bad_reasons.end(), b.bad_reasons.begin(), b.bad_reasons.end());
  return merged;
}

}  // namespace attune
