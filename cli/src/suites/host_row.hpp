// A row of a suite on the host: its op in turns with what it is held against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/device.hpp>

#include "problems/command_context.hpp"
#include "suites/host_ceilings.hpp"
#include "suites/host_samples.hpp"
#include "suites/measure.hpp"

namespace attune::cli {

// The ops of such rows.
inline constexpr std::string_view kForwardOp = "recurrent_attention";
inline constexpr std::string_view kBackwardOp = "recurrent_attention.backward";
inline constexpr std::string_view kDecodeOp = "recurrent_decode";

/// The ceilings of one number of threads.
class HostCeilings {
 public:
  HostCeilings(CeilingMemory& memory, int threads, const MeasureSettings& settings)
      : memory_(&memory), threads_(threads), settings_(settings) {}

  /// Which one binds `flops` and `bytes`. Half of the bytes are read, the other half written.
  Ceiling binding(double flops, double bytes, bool in_place, bool on_tiles) const;

 private:
  CeilingMemory* memory_;
  int threads_;
  MeasureSettings settings_;
};

/// What tells that others use the machine: instructions issued, multiply-adds, and bytes updated in
/// the second-level cache and in the third. On several threads each lasts a few times as long:
/// starting and joining them takes now one microsecond and now three.
std::vector<QuietProbe> quiet_probes(CeilingMemory& memory, const DeviceInfo& host, int threads);

/// Cores that a row is timed on.
struct Cores {
  const Device* host;
  HostCeilings ceilings;
  std::vector<QuietProbe> probes;
};

struct HostRow {
  Timing timing;      // no samples: interrupted
  double tokens = 0;  // of all sequences
  double kept = 0;    // share of the rounds that count
  double flops = 0, bytes = 0;
  std::string ceiling;
  double share = 0;
  std::optional<double> naive_us, speedup, forward_us, times_forward;
  std::optional<double> scaling;          // time on one thread over that on all
  std::optional<double> ceiling_scaling;  // the ceiling's rate on all over that on one
  std::string kernel, config;
};

/// Times the selected choice beside the ceiling that binds it and the naive loop, or a backward
/// pass beside the forward pass. `alone` is null where `cores` are one.
HostRow time_host_row(const CommandContext& command, const Target& target, Cores& cores,
                      const Cores* alone, const MeasureSettings& settings);

}  // namespace attune::cli
