// Tensors: views that borrow memory, and an owner.
//
// A view is a pointer, an element type, a shape, strides in elements (not bytes) and the device the
// memory is on. Any strides are representable: a [B, H, T, K] array is passed as its [B, T, H, K]
// view by permute(). An empty tensor (some extent is 0) may have a null pointer.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <attune/core/dtype.hpp>
#include <attune/core/short_name.hpp>

namespace attune {

class Device;

/// Which device: the name of its backend ("cpu", "gpu", or a user's own) and its index there.
struct DeviceId {
  ShortName backend = "cpu";
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const DeviceId& id);  // "cpu:0"
};

/// Up to five extents or strides, outermost first.
class Extents {
 public:
  static constexpr int kMaxRank = 5;

  constexpr Extents() = default;
  Extents(std::initializer_list<std::int64_t> values)
      : Extents(std::span<const std::int64_t>(values.begin(), values.size())) {}
  /// Throws InvalidArgument when there are more than kMaxRank values.
  explicit Extents(std::span<const std::int64_t> values);

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  constexpr const std::int64_t* begin() const { return values_.data(); }
  constexpr const std::int64_t* end() const { return values_.data() + rank_; }
  friend bool operator==(const Extents&, const Extents&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Extents& extents);  // "[2, 64, 8, 128]"

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// The product of the extents. Throws InvalidArgument when an extent is negative or the product
/// exceeds 2^63 - 1.
std::int64_t element_count(const Extents& shape);

/// Strides of a dense row-major array of this shape.
Extents contiguous_strides(const Extents& shape);

/// A borrowed strided array. Pointer is `void*` (TensorView) or `const void*` (ConstTensorView).
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  Extents shape;
  Extents strides;  // in elements
  DeviceId device;

  BasicTensorView() = default;

  /// A dense row-major array in host memory; the element type follows from the pointer.
  template <class T>
  requires(!std::is_void_v<T> && std::is_convertible_v<T*, Pointer>)
      BasicTensorView(T* first, const Extents& extents, const DeviceId& where = {})
      : BasicTensorView(first, kDTypeOf<std::remove_const_t<T>>, extents, where) {}

  /// A dense row-major array of `type`.
  BasicTensorView(Pointer first, DType type, const Extents& extents, const DeviceId& where = {})
      : data(first),
        dtype(type),
        shape(extents),
        strides(contiguous_strides(extents)),
        device(where) {}

  /// An array with the given strides, in elements.
  BasicTensorView(Pointer first, DType type, const Extents& extents, const Extents& steps,
                  const DeviceId& where = {})
      : data(first), dtype(type), shape(extents), strides(steps), device(where) {}

  /// A view that may be written is also one that may be read.
  template <class Other>
  requires(!std::is_same_v<Other, Pointer> && std::is_convertible_v<Other, Pointer>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data),
        dtype(other.dtype),
        shape(other.shape),
        strides(other.strides),
        device(other.device) {}

  int rank() const { return shape.rank(); }
  std::int64_t size(int dim) const { return shape[dim]; }
  std::int64_t stride(int dim) const { return strides[dim]; }
  bool empty() const;  // some extent is 0
  bool is_contiguous() const;

  /// The same memory with its dimensions in another order: result dim i is dim order[i] of this.
  /// Throws InvalidArgument when `order` is not a permutation of 0 .. rank-1.
  BasicTensorView permute(std::initializer_list<int> order) const;

  /// Elements [begin, end) of one dimension. Throws InvalidArgument outside of the shape.
  BasicTensorView slice(int dim, std::int64_t begin, std::int64_t end) const;

  /// The same memory with a dimension of extent 1 put in front of `dim`. Throws InvalidArgument at
  /// rank kMaxRank.
  BasicTensorView unsqueeze(int dim) const;
};
using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;
extern template struct BasicTensorView<void*>;
extern template struct BasicTensorView<const void*>;

/// An owner of dense row-major memory on a device. Move-only; the device must outlive it.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised memory in the host. Throws std::bad_alloc.
  Tensor(DType dtype, const Extents& shape);
  /// Uninitialised memory on `device`, allocated in the order of `stream`.
  Tensor(DType dtype, const Extents& shape, const Device& device, void* stream = nullptr);
  /// A host tensor with a copy of `values`. Throws InvalidArgument when the count does not match.
  template <class T>
  static Tensor of(std::span<const T> values, const Extents& shape) {
    Tensor tensor(kDTypeOf<T>, shape);
    tensor.assign(std::as_bytes(values));
    return tensor;
  }
  template <class T>
  static Tensor of(const std::vector<T>& values, const Extents& shape) {
    return of(std::span<const T>(values), shape);
  }
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  DType dtype() const { return view_.dtype; }
  const Extents& shape() const { return view_.shape; }
  std::size_t bytes() const { return bytes_; }

  TensorView view() { return view_; }
  ConstTensorView view() const { return view_; }
  operator TensorView() { return view_; }             // NOLINT(google-explicit-constructor)
  operator ConstTensorView() const { return view_; }  // NOLINT(google-explicit-constructor)

  /// The elements of a host tensor. Throws InvalidArgument for another element type or a device
  /// tensor.
  template <class T>
  std::span<T> values() {
    check_host(kDTypeOf<T>);
    return {static_cast<T*>(view_.data), bytes_ / sizeof(T)};
  }
  template <class T>
  std::span<const T> values() const {
    check_host(kDTypeOf<T>);
    return {static_cast<const T*>(view_.data), bytes_ / sizeof(T)};
  }

 private:
  void assign(std::span<const std::byte> values);
  void check_host(DType dtype) const;
  void release() noexcept;

  TensorView view_;
  std::size_t bytes_ = 0;
  const Device* device_ = nullptr;
  void* stream_ = nullptr;
};

/// Host tensors by name, as files and checks hold them.
using TensorMap = std::map<std::string, Tensor, std::less<>>;

/// A dense host copy of any view. `device` is the one the view is on.
Tensor to_host(const ConstTensorView& view, const Device& device);

/// Element `index` of a host view as a double, whatever its floating-point type; index in row-major
/// order.
double element_as_double(const ConstTensorView& view, std::int64_t index);

/// All elements of a host view of any floating-point type, in row-major order.
std::vector<double> to_doubles(const ConstTensorView& view);

}  // namespace attune
