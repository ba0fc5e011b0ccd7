// Where a candidate runs: tensors of a problem on a device, the scratch memory it needs, and a
// guard around each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>
#include <attune/core/op.hpp>
#include <attune/tuner/tuner.hpp>

#include "measuring/guarded_device.hpp"

namespace attune::tuning {

class Harness {
 public:
  /// Makes `copies` cases (sets of tensors) with equal inputs. Throws what making a case throws.
  Harness(const OpInfo& op, ProblemRef problem, const Device& device, std::uint64_t seed,
          int copies = 1);

  ProblemRef problem() const { return cases_.front()->problem(); }
  const Device& device() const { return guarded_; }
  const Case& first() const { return *cases_.front(); }

  /// Restores the first case's tensors and fills its outputs with `poison`; the device is idle
  /// afterwards.
  void reset(std::byte poison);

  /// Makes what a candidate needs to run: room for its scratch memory, and what its kernel
  /// prepares.
  /// run() and time_us() do so themselves.
  void reserve(const Candidate& candidate);

  /// What candidates wrote outside of the first case's tensors and of their scratch memory since
  /// the last time, or "". The device is idle.
  std::string take_damage() const { return guarded_.take_damage(); }

  /// Checksums of the memory that a candidate may only read, by its address. The device is idle.
  std::map<const void*, std::uint64_t> sums_of_inputs() const;

  /// Runs a candidate once, on the first case, and waits. Throws what the kernel throws.
  void run(const Candidate& candidate);

  /// Microseconds of `repeats` launches back to back, each on the next of the cases. Throws what
  /// the kernel throws.
  double time_us(const Candidate& candidate, int repeats);

 private:
  struct Release {
    const Device* device;
    void operator()(std::byte* memory) const noexcept { device->deallocate(memory, nullptr); }
  };

  LaunchSite site_of(const Candidate& candidate, void* stream);

  const Device* device_;
  GuardedDevice guarded_;  // of the first case and the scratch memory
  std::vector<std::unique_ptr<Case>> cases_;
  std::unique_ptr<std::byte, Release> scratch_;
  std::size_t scratch_bytes_ = 0;
  const Prepared* prepared_ = nullptr;  // of the candidate that runs; null for most kernels
  std::size_t next_case_ = 0;           // of the next launch, from sample to sample
};

/// How many copies of a problem's tensors a timing rotates over so that no launch finds its tensors
/// in the device's cache. One on the host, where a caller's tensors are mostly in the cache as
/// well.
int copies_to_rotate(const OpInfo& op, ProblemRef problem, const Device& device);

}  // namespace attune::tuning
