// What a device does with arrays where they are, so that none travels to the host and back: digests,
// by which two results are compared and searched for NaN, and copies. Through the host either takes
// ten to a hundred times as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

/// What can be said of an array in a few bytes.
struct Digest {
  /// Of the bits of all elements in row-major order. Digests of one device can be compared: each has
  /// a checksum of its own.
  std::uint64_t sum = 0;
  /// The first element, in row-major order, that is an infinity or a NaN; -1 where none is, and of
  /// integers.
  std::int64_t not_finite = -1;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// What a Device may be besides.
class InPlaceDevice {
 public:
  /// One for each of `views`, which are on this device and have no work to wait for. Throws what
  /// synchronize() throws.
  virtual std::vector<Digest> digests(std::span<const ConstTensorView> views) const = 0;

  /// Copies between memory of this device, in the order of `stream`.
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) const = 0;

 protected:
  ~InPlaceDevice() = default;
};

// By the device itself where it is one, else through the host. Throw what the device throws.

/// One for each of `views`, which are on `device` and have no work to wait for.
std::vector<Digest> digests_of(std::span<const ConstTensorView> views, const Device& device);

/// Copies between memory of `device`, in the order of `stream`.
void copy_within(const Device& device, void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace attune
