// Rows for tests: every member differs from its default and from row to row, and all of one can be
// compared.
#pragma once

#include <cstdint>
#include <iomanip>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <attune/cache/config_row.hpp>
#include <attune/cache/database_content.hpp>
#include <attune/core/error.hpp>

namespace attune::test {

inline RowKey sample_key(std::int64_t i) {
  return {"row_softmax", "cpu avx2 cores=8", "auto", str("rows=", 100 + i, " cols=64 dtype=f32")};
}

inline ConfigRow sample_row(std::int64_t i) {
  ConfigRow row;
  row.key = sample_key(i);
  row.bucket = "rows=128 cols=64 dtype=f32";
  row.kernel = "simd.row_softmax.blocked";
  row.kernel_version = 3 + i;
  row.config = str("unroll=", 1 + i % 8, ",threads=2");
  row.median_us = 12.5 + 0.25 * static_cast<double>(i);
  row.default_us = 20.123456;
  row.default_config = "simd.row_softmax.blocked unroll=1,threads=1";
  row.spread = 0.1 + 0.2 / static_cast<double>(i + 1);
  row.samples = 100 + i;
  row.error = 1.0 / 3.0 / static_cast<double>(i + 1);
  row.candidates_tried = 40 + i;
  row.candidates_refused = 2 + i;
  row.noise = NoiseGrade::kB;
  row.library_version = "0.1.0";
  row.toolkit = "13.0 580.65";
  row.device_name = "Prüfstand α";
  row.created = 1'700'000'000 + i;
  return row;
}

inline TrialRow sample_trial(std::int64_t i) {
  TrialRow trial;
  trial.kernel = "simd.row_softmax.blocked";
  trial.config = str("unroll=", 1 + i);
  trial.outcome = i % 2 == 0 ? "ok" : "wrong";
  trial.reason = str("reason ", i);
  trial.median_us = 0.5 * static_cast<double>(i);
  trial.samples = 7 + i;
  trial.error = 0.001 * static_cast<double>(i);
  trial.created = 1'700'000'100 + i;
  return trial;
}

inline PinRow sample_pin(std::int64_t i) {
  return {sample_key(i), "reference.row_softmax", "", str("a known fault, ", i), 1'700'000'000, 0};
}

inline QuarantineRow sample_quarantine(std::int64_t i) {
  return {
      "row_softmax",       "cpu avx2 cores=8", "simd.row_softmax.blocked", 3, str("unroll=", i), "",
      str("crashed, ", i), 1'700'000'000 + i};
}

/// Every member of a row, doubles to the last bit.
inline std::string text_of(const ConfigRow& row) {
  std::ostringstream out;
  out << std::hexfloat;
  for (const std::string* text :
       {&row.key.op, &row.key.device_class, &row.key.platform, &row.key.problem, &row.bucket,
        &row.kernel, &row.config, &row.default_config, &row.library_version, &row.toolkit,
        &row.device_name}) {
    out << std::quoted(*text) << ' ';
  }
  for (const std::int64_t value :
       {row.kernel_version, row.samples, row.candidates_tried, row.candidates_refused, row.created,
        static_cast<std::int64_t>(row.noise)}) {
    out << value << ' ';
  }
  for (const double value : {row.median_us, row.default_us, row.spread, row.error})
    out << value << ' ';
  return out.str();
}

inline std::string text_of(const TrialRow& row) {
  std::ostringstream out;
  out << std::hexfloat << row.key.problem << '|' << row.kernel << '|' << row.config << '|'
      << row.outcome << '|' << row.reason << '|' << row.median_us << '|' << row.samples << '|'
      << row.error << '|' << row.created;
  return out.str();
}

inline std::string text_of(const PinRow& row) {
  return str(row.key.op, '|', row.key.device_class, '|', row.key.platform, '|', row.key.problem,
             '|', row.kernel, '|', row.config, '|', row.reason, '|', row.created, '|', row.expires);
}

inline std::string text_of(const QuarantineRow& row) {
  return str(row.op, '|', row.device_class, '|', row.kernel, '|', row.kernel_version, '|',
             row.config, '|', row.problem, '|', row.reason, '|', row.created);
}

template <class Row>
std::set<std::string> texts_of(const std::vector<Row>& rows) {
  std::set<std::string> texts;
  for (const Row& row : rows) texts.insert(text_of(row));
  return texts;
}

/// Some of everything, an infinite error among it.
inline DatabaseContent sample_content() {
  DatabaseContent content;
  for (std::int64_t i = 0; i < 3; ++i) {
    content.decisions.push_back({sample_row(i), {sample_trial(i), sample_trial(i + 1)}});
    for (TrialRow& trial : content.decisions.back().trials) trial.key = sample_row(i).key;
  }
  content.decisions[0].trials[0].error = std::numeric_limits<double>::infinity();
  content.decisions[1].trials.clear();
  content.pins = {sample_pin(1), sample_pin(2)};
  content.quarantine = {sample_quarantine(1)};
  content.sort();
  return content;
}

}  // namespace attune::test
