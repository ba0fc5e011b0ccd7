// What a config database holds, as a value: to be merged, compared, written as text, and shipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <attune/cache/config_row.hpp>

namespace attune {

/// A decision with the candidates of its tuning, in the order they were tried.
struct StoredDecision {
  ConfigRow row;
  std::vector<TrialRow> trials;
  friend bool operator==(const StoredDecision&, const StoredDecision&) = default;
};

/// Everything but leases, which are of processes that run now. At most one row a key, in the order
/// of keys.
struct DatabaseContent {
  std::vector<StoredDecision> decisions;
  std::vector<PinRow> pins;
  std::vector<QuarantineRow> quarantine;

  std::int64_t bad_rows = 0;             // left out: damaged, or not legal
  std::vector<std::string> bad_reasons;  // one for each of the first hundred

  bool empty() const { return decisions.empty() && pins.empty() && quarantine.empty(); }
  /// Puts the rows in the order of their keys, which is also that of texts.
  void sort();

  /// Equal rows, whatever was left out.
  friend bool operator==(const DatabaseContent& a, const DatabaseContent& b) {
    return a.decisions == b.decisions && a.pins == b.pins && a.quarantine == b.quarantine;
  }
};

/// Whether a merge keeps `a` rather than `b`, two rows of one key. A total order, by
///
///   1. grade A or B before C
///   2. the newer version of the library, as rows of older ones are stale
///   3. the higher speed-up over the default, each in its own search; times are never compared
///   4. grade, samples, date, and at last all values, so that every machine decides alike
bool outranks(const ConfigRow& a, const ConfigRow& b);

/// All rows of both. Of two decisions with one key, the one that outranks the other is kept, with
/// its trials: rows are never mixed. Of two pins or quarantined candidates with one key, the later
/// is kept. Commutative, associative and idempotent: any number of databases may be merged, in any
/// order, and again.
DatabaseContent merge(const DatabaseContent& a, const DatabaseContent& b);

}  // namespace attune
