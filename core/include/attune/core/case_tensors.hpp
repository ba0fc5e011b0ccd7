// What cases are made of: tensors of their own in any layout, random values, and the contents of
// tensor files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>

namespace attune {

/// How a tensor of a case is stored.
struct Storage {
  enum class Order {
    kDense,    // row-major
    kSwapped,  // of rank 4, with the two dimensions before the last swapped
    kPadded,   // as if cut out of a larger tensor: gaps behind rows and behind what is made of them
  };
  Order order = Order::kDense;
  bool misaligned = false;  // shifted by one element, so that no row is aligned
};

/// Pointers that it returns are valid as long as it, also once it has been moved.
class CaseTensors {
 public:
  explicit CaseTensors(const Device& device) : device_(&device) {}

  const Device& device() const { return *device_; }

  /// A copy of `values`, which are dense and in host memory.
  const TensorView* input(std::string name, Tensor values, const Storage& storage = {});
  const TensorView* output(std::string name, DType dtype, const Extents& shape,
                           const Storage& storage = {});
  /// An output that starts out as `values`, and is reset to them.
  const TensorView* updated(std::string name, Tensor values, const Storage& storage = {});

  void reset(std::byte poison);
  std::vector<NamedTensor> outputs() const;

 private:
  struct Entry {
    std::string name;
    Tensor memory;  // everything between the first and the last element
    TensorView view;
    bool is_output = false;
    Tensor initial;  // copy of `memory`, of an updated tensor: on the device if there is room
  };

  Entry& add(std::string name, DType dtype, const Extents& shape, const Storage& storage);
  Entry& add_values(std::string name, Tensor values, const Storage& storage);
  void keep_on_device(Entry& entry);

  const Device* device_;
  std::deque<Entry> entries_;
};

/// Random values. Element i of a stream depends on nothing but the seed, the stream and i. A tensor
/// of more than a million repeats its first million, which a host copies many times faster than it
/// draws.
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
  struct Range {
    bool even;  // between `from` and `from` + `size`; else of deviation `size` around `from`
    float from;
    float size;
    friend bool operator==(const Range&, const Range&) = default;
  };
  friend class RepeatedValues;

  Tensor next_tensor(DType dtype, const Extents& shape, const Range& range);

  std::uint64_t seed_;
  std::uint64_t streams_ = 0;
};

/// While it lives, random tensors that its thread makes once more, of the same seed, stream, type
/// and shape, are copies of the first: cases of one problem, made one after the other, cost what
/// copying costs. Keeps a host copy of each.
class RepeatedValues {
 public:
  RepeatedValues();
  ~RepeatedValues();
  RepeatedValues(const RepeatedValues&) = delete;
  RepeatedValues& operator=(const RepeatedValues&) = delete;

 private:
  friend class RandomValues;
  class Made;
  std::unique_ptr<Made> made_;
  RepeatedValues* outer_;
};

/// Tensors whose names start with this are what a file expects, not inputs.
inline constexpr std::string_view kExpectPrefix = "expect.";

/// The contents of a tensor file: names and attributes, checked.
class FileInputs {
 public:
  /// Throws InvalidArgument for a tensor that is not among `known`, naming it.
  FileInputs(std::string_view op, const TensorMap& tensors, const Attributes& attributes,
             const std::vector<std::string>& known);

  /// The file's tensor, in host memory, or null. required() throws InvalidArgument instead.
  const Tensor* find(std::string_view name) const;
  const Tensor& required(std::string_view name) const;

  /// Attributes; nothing when they are not there. Throw InvalidArgument for a text that does not
  /// fit.
  std::optional<double> number(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name) const;
  bool flag(std::string_view name) const;

  /// Warns of attributes that nobody has asked for: a misspelt one would be ignored. "op" says what
  /// the file is for, and "format" is what other writers of such files put there.
  void warn_of_unread_attributes() const;

 private:
  const std::string* attribute(std::string_view name) const;

  std::string_view op_;
  const TensorMap& tensors_;
  const Attributes& attributes_;
  mutable std::vector<std::string> asked_{"op", "format"};  // attributes
};

}  // namespace attune
