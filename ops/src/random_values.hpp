// Values of made-up inputs. Element i of a stream depends on nothing but the seed, the stream and
// i.
#pragma once

#include <cstdint>

#include <attune/core/tensor.hpp>

namespace attune::ops {

class RandomValues {
 public:
  explicit RandomValues(std::uint64_t seed) : seed_(seed) {}

  // Each call is a stream of its own.

  /// A host tensor of any floating-point type with mean 0, the given standard deviation and no
  /// value beyond 3.5 of them.
  Tensor normal(DType dtype, const Extents& shape, double deviation = 1);
  /// A host tensor of any floating-point type with values evenly in [low, high).
  Tensor uniform(DType dtype, const Extents& shape, double low, double high);
  /// A number in [0, 1).
  double next();

 private:
  std::uint64_t seed_;
  std::uint64_t streams_ = 0;
};

}  // namespace attune::ops
