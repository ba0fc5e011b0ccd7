// A tensor of any layout that a caller may use, in memory with nothing around it: dimensions in any
// order, gaps between rows, rows backwards or one for all, any stride where there is one element.
//
// In host memory it ends where a page ends that the next one may not be read, or begins where one
// begins. Gaps are NaN.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/tensor.hpp>

namespace attune::test {

/// Random choices, the same for the same seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15U + 1) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }
  template <class T, std::size_t N>
  T one_of(const T (&all)[N]) {
    return all[static_cast<std::size_t>(between(0, std::int64_t{N} - 1))];
  }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(all.size()) - 1))];
  }
  double normal() { return normal_(random_); }
  std::mt19937_64& bits() { return random_; }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

/// What a layout keeps to.
struct LayoutRules {
  bool rows = false;     // the last dimension is contiguous
  bool repeats = false;  // elements may share memory: an input
};

enum class LayoutKind : std::uint8_t { kDense, kHeadsFirst, kAny };

class DrawnTensor {
 public:
  DrawnTensor(Draw& draw, LayoutKind kind, DType dtype, const Extents& shape,
              const LayoutRules& rules);

  DType dtype() const { return dtype_; }
  const Extents& shape() const { return shape_; }
  std::int64_t count() const { return static_cast<std::int64_t>(offsets_.size()); }
  /// Element i in row-major order, before place().
  void set(std::int64_t i, double value);
  void set_integer(std::int64_t i, std::int64_t value);
  /// As kernels are given it: rounded to the tensor's type.
  std::vector<double> inputs() const;
  double input(std::int64_t i) const { return value_at(image_.data(), i); }

  /// Memory on the device, filled by restore().
  void place(const Device& device);
  TensorView view() const;
  /// What set() gave, or `poison` in every byte of every element.
  void restore();
  void restore(std::byte poison);
  /// What is there now, in row-major order.
  std::vector<double> outputs() const;
  /// The byte that changed first since restore(), elements left out where `outputs`; "" if none.
  std::string changed(bool outputs) const;
  /// Whether element i has the bits that set() gave it.
  bool is_unchanged(std::int64_t i, const std::vector<std::byte>& now) const;
  std::vector<std::byte> now() const;

 private:
  double value_at(const std::byte* memory, std::int64_t i) const;
  std::size_t byte_of(std::int64_t i) const {
    return static_cast<std::size_t>(offsets_[static_cast<std::size_t>(i)]) * size_of(dtype_);
  }

  DType dtype_;
  Extents shape_, strides_;
  std::int64_t first_ = 0;                 // element, in the memory
  std::vector<std::int64_t> offsets_;      // of elements in row-major order
  std::vector<std::byte> image_, filled_;  // what is restored
  bool at_end_;
  std::int64_t shift_;  // elements, on a device
  const Device* device_ = nullptr;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace attune::test
