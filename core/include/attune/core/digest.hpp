// What can be said of an array in a few bytes: a checksum, and the first of its elements that is not
// finite. Two runs that should give the same bits are compared by it, and large results stay where
// they are: to fetch and read them takes a host a hundred times as long as their device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

struct Digest {
  /// Of the bits of all elements in row-major order. Digests of one device can be compared: each has
  /// a checksum of its own.
  std::uint64_t sum = 0;
  /// The first element, in row-major order, that is an infinity or a NaN; -1 where none is, and of
  /// integers.
  std::int64_t not_finite = -1;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// What a Device may be besides: one that reads arrays in its memory itself.
class DigestingDevice {
 public:
  /// One for each of `views`, which are on this device and have no work to wait for. Throws what
  /// synchronize() throws.
  virtual std::vector<Digest> digests(std::span<const ConstTensorView> views) const = 0;

 protected:
  ~DigestingDevice() = default;
};

/// One for each of `views`, which are on `device` and have no work to wait for: by the device itself
/// where it is a DigestingDevice, else by the host, of copies. Throws what the device throws.
std::vector<Digest> digests_of(std::span<const ConstTensorView> views, const Device& device);

}  // namespace attune
