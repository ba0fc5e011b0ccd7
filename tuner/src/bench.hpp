// A problem made concrete on a device: its cases and scratch memory, and running candidates on
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>
#include <attune/core/op.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune::tuning {

class Bench {
 public:
  /// Makes `copies` cases with equal inputs. Throws what making a case throws.
  Bench(const OpInfo& op, ProblemRef problem, const Device& device, std::uint64_t seed,
        int copies = 1);

  ProblemRef problem() const { return cases_.front()->problem(); }
  const Device& device() const { return *device_; }
  const Case& first() const { return *cases_.front(); }

  /// Restores the first case and poisons its outputs; the device is idle afterwards.
  void reset(std::byte poison);

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
  void reserve(const Candidate& candidate);

  const Device* device_;
  std::vector<std::unique_ptr<Case>> cases_;
  std::unique_ptr<std::byte, Release> scratch_;
  std::size_t scratch_bytes_ = 0;
};

/// How many copies of a problem's tensors a timing must rotate over so that none is found in the
/// device's cache. One on the host, where a caller's tensors are mostly in the cache as well.
int copies_to_rotate(const OpInfo& op, ProblemRef problem, const Device& device);

}  // namespace attune::tuning
