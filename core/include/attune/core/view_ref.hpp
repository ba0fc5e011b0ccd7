// Either kind of tensor view, by reference: what checks look at.
#pragma once

#include <cstdint>

#include <attune/core/tensor.hpp>

namespace attune {

/// Valid as long as the view that it was made from.
class ViewRef {
 public:
  ViewRef() = default;
  template <class Pointer>
  ViewRef(const BasicTensorView<Pointer>& view)  // NOLINT(google-explicit-constructor): stands in
      : data_(view.data),
        dtype_(view.dtype),
        shape_(&view.shape),
        strides_(&view.strides),
        device_(&view.device) {}

  /// False for one that stands for no view: an optional tensor that is not given.
  bool given() const { return shape_ != nullptr; }

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Extents& shape() const { return *shape_; }
  const Extents& strides() const { return *strides_; }
  const DeviceId& device() const { return *device_; }
  int rank() const { return shape_->rank(); }
  std::int64_t size(int dim) const { return (*shape_)[dim]; }
  std::int64_t stride(int dim) const { return (*strides_)[dim]; }

  bool empty() const {
    for (const std::int64_t extent : *shape_) {
      if (extent == 0) return true;
    }
    return false;
  }

 private:
  const void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  const Extents* shape_ = nullptr;
  const Extents* strides_ = nullptr;
  const DeviceId* device_ = nullptr;
};

}  // namespace attune
