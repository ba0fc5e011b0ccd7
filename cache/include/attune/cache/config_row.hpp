// Rows of a config database: what was decided for a problem, and the evidence. Format:
// docs/cache_format.md.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// What a row is about. Rows with equal keys describe one decision.
struct RowKey {
  std::string op;            // OpInfo::kernel_op
  std::string device_class;  // DeviceInfo::device_class
  std::string platform;      // the request's: "auto", "simd", ...: row_request.hpp
  std::string problem;       // the problem's text, exact
  auto operator<=>(const RowKey&) const = default;  // nvcc 13.0 loses the == of a friend
};

/// How quiet the machine was while it measured, by the samples of the default.
enum class NoiseGrade : std::int32_t {
  kA,  // they spread by less than 1 %
  kB,  // by less than 3 %
  kC,  // by more: the row counts on this machine, below shipped rows, and is not to be shipped
};
std::string_view to_string(NoiseGrade grade);  // "A", "B", "C"

/// A decision with its provenance. Its times are comparable with each other only; where the key has
/// another objective than time, `median_us` and `default_us` are in that objective's unit.
struct ConfigRow {
  RowKey key;
  std::string bucket;  // the problem's text with bucketed fields rounded

  std::string kernel;
  std::int64_t kernel_version = 0;
  std::string config;  // "tile_v=64,threads=2"; "" for a kernel without parameters

  double median_us = 0;        // of this config, > 0
  double default_us = 0;       // of the default in the same search, > 0
  std::string default_config;  // "kernel config" of the default
  double spread = 0;           // median absolute deviation / median
  std::int64_t samples = 0;
  double error = 0;  // worst relative RMS error against the oracle, over all outputs
  std::int64_t candidates_tried = 0;
  std::int64_t candidates_refused = 0;
  NoiseGrade noise = NoiseGrade::kC;

  std::string library_version;
  std::string toolkit;  // and driver; "" on a CPU
  std::string device_name;
  std::int64_t created = 0;  // seconds since 1970, UTC

  auto operator<=>(const ConfigRow&) const = default;  // nvcc 13.0 loses the == of a friend
};

/// Where a row comes from: measured here, from ATTUNE_SYSTEM_DB_PATH, or from the installation.
enum class Layer : std::int32_t { kUser, kSite, kShipped };
std::string_view to_string(Layer layer);  // "user", "site", "shipped"

/// An operator's decision for one key, above everything that was measured.
struct PinRow {
  RowKey key;
  std::string kernel;
  std::string config;
  std::string reason;
  std::int64_t created = 0;
  std::int64_t expires = 0;                         // 0: never
  auto operator<=>(const PinRow&) const = default;  // nvcc 13.0 loses the == of a friend
};

/// A candidate that must not be tried again on a device class: it crashed, hung or was wrong.
struct QuarantineRow {
  std::string op;
  std::string device_class;
  std::string kernel;
  std::int64_t kernel_version = 0;
  std::string config;
  std::string problem;  // "" for every problem
  std::string reason;
  std::int64_t created = 0;
  auto operator<=>(const QuarantineRow&) const = default;  // nvcc 13.0 loses the == of a friend
};

/// One candidate of a search, measured or refused; kept with the decision.
struct TrialRow {
  RowKey key;
  std::string kernel;
  std::string config;
  std::string outcome;  // "ok", "wrong", "failed", "slow", ...
  std::string reason;
  double median_us = 0;  // 0: not timed
  std::int64_t samples = 0;
  double error = 0;
  std::int64_t created = 0;
  auto operator<=>(const TrialRow&) const = default;  // nvcc 13.0 loses the == of a friend
};

}  // namespace attune
