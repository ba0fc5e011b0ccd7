// One call of attune's over torch's tensors: views of them as attune.h has them, results and
// workspace from torch's allocator, on q's current stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <attune/attune.h>

#include "stream.hpp"
#include "text.hpp"

namespace attune_torch {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline attune_dtype dtype_of(const char* name, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return {ATTUNE_FLOAT, 32, 1};
    case ScalarType::Half:
      return {ATTUNE_FLOAT, 16, 1};
    case ScalarType::BFloat16:
      return {ATTUNE_BFLOAT, 16, 1};
    case ScalarType::Int:
      return {ATTUNE_INT, 32, 1};
    case ScalarType::Long:
      return {ATTUNE_INT, 64, 1};
    case ScalarType::Double:
      return {ATTUNE_FLOAT, 64, 1};  // attune.h says what it takes instead
    default:
      throw std::runtime_error(std::string("attune: ") + name + ": dtype " +
                               torch::headeronly::toString(tensor.scalar_type()) +
                               ", expected Float, Half or BFloat16, or of indices Int or Long");
  }
}

/// The tensors of one call as attune.h wants them: over the sizes and strides that torch has of them,
/// so that they must outlive this object. Owns what had to be copied.
class Tensors {
 public:
  enum class Layout { kAsIs, kLastTwoSwapped };

  /// A tensor that is read. One whose last dimension is not contiguous is copied: gradients of sums
  /// arrive with strides of 0. (Before the kernel, and not by the caller, since a compiler may
  /// change strides between tracing and the call.)
  const attune_tensor* input(const char* name, const Tensor& tensor) {
    const std::int64_t rank = tensor.dim();
    const bool strided = rank > 0 && tensor.size(rank - 1) > 1 && tensor.stride(rank - 1) != 1;
    if (!strided) return add(name, tensor, Layout::kAsIs);
    return add(name, copies_.emplace_back(torch::stable::contiguous(tensor)), Layout::kAsIs);
  }
  const attune_tensor* input(const char* name, const OptionalTensor& tensor) {
    return tensor ? input(name, *tensor) : nullptr;
  }
  /// A state, which may have any strides, or a tensor that is written.
  const attune_tensor* as_is(const char* name, const Tensor& tensor,
                             Layout layout = Layout::kAsIs) {
    return add(name, tensor, layout);
  }
  const attune_tensor* state(const char* name, const OptionalTensor& tensor, Layout layout) {
    return tensor ? add(name, *tensor, layout) : nullptr;
  }

 private:
  static constexpr std::size_t kMostTensors = 24;  // a backward call has 22
  static constexpr std::size_t kMostDimensions = 5;
  struct Entry {
    attune_tensor view;
    std::array<std::int64_t, kMostDimensions> shape, strides;  // where they are not torch's
  };

  const attune_tensor* add(const char* name, const Tensor& tensor, Layout layout) {
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    const std::size_t rank = sizes.size();
    if (rank > kMostDimensions) {
      throw std::runtime_error(std::string("attune: ") + name + " has " + std::to_string(rank) +
                               " dimensions, at most 5 are expected");
    }
    Entry& entry = entries_.at(count_++);
    entry.view = {.data = tensor.data_ptr(),
                  .device = device_of(tensor),
                  .ndim = static_cast<std::int32_t>(rank),
                  .dtype = dtype_of(name, tensor),
                  .shape = sizes.data(),
                  .strides = strides.data(),
                  .byte_offset = 0};
    if (layout == Layout::kLastTwoSwapped && rank >= 2) {
      std::copy(sizes.begin(), sizes.end(), entry.shape.begin());
      std::copy(strides.begin(), strides.end(), entry.strides.begin());
      std::swap(entry.shape[rank - 1], entry.shape[rank - 2]);
      std::swap(entry.strides[rank - 1], entry.strides[rank - 2]);
      entry.view.shape = entry.shape.data();
      entry.view.strides = entry.strides.data();
    }
    return &entry.view;
  }

  std::array<Entry, kMostTensors> entries_;  // addresses stay
  std::size_t count_ = 0;
  std::vector<Tensor> copies_;
};

/// The sizes of a tensor that is to be made, at most 5.
class Shape {
 public:
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes) push_back(size);
  }
  explicit Shape(const Tensor& tensor) {
    for (const std::int64_t size : tensor.sizes()) push_back(size);
  }
  std::int64_t& back() { return sizes_.at(rank_ - 1); }
  const std::int64_t* data() const { return sizes_.data(); }
  std::size_t rank() const { return rank_; }
  /// "[2, 16]"
  std::string text() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank_; ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(sizes_[i]);
    return text + "]";
  }

 private:
  void push_back(std::int64_t size) { sizes_.at(rank_++) = size; }

  std::array<std::int64_t, 5> sizes_;
  std::size_t rank_ = 0;
};

/// A new dense tensor on the device of another one, of its type or `type`. new_empty() would pass
/// torch's dispatcher twice, which costs more than the memory does.
inline Tensor empty(const Tensor& like, const Shape& shape,
                    std::optional<ScalarType> type = std::nullopt) {
  std::array<std::int64_t, 5> strides;
  std::int64_t elements = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    strides[i] = elements;
    elements *= std::max<std::int64_t>(shape.data()[i], 1);
  }
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  const auto dtype = to<std::int32_t>(from(type ? *type : like.scalar_type()));
  std::int32_t device_type = 0;
  AtenTensorHandle made = nullptr;
  if (aoti_torch_get_device_type(like.get(), &device_type) != AOTI_TORCH_SUCCESS ||
      aoti_torch_empty_strided(static_cast<std::int64_t>(shape.rank()), shape.data(),
                               strides.data(), dtype, device_type, like.get_device_index(),
                               &made) != AOTI_TORCH_SUCCESS) {
    const std::string why = last_failure();
    throw std::runtime_error("attune: torch made no tensor of " + shape.text() + ": " +
                             (why.empty() ? "out of memory" : why));
  }
  return Tensor(made);
}

/// How a call is made: the workspace is a tensor of torch's, held until the work is queued. The
/// allocator gives it to nobody else before that work is done, as its stream is the same.
class Call {
 public:
  Call(const Tensor& q, bool allow_tf32, const Text& platform, const Text& config) : like_(q) {
    call_.struct_size = sizeof call_;
    call_.flags = allow_tf32 ? ATTUNE_ALLOW_TF32 : 0U;
    call_.stream = current_stream(q);
    call_.allocate = [](void* user, std::size_t bytes, attune_device, void*) noexcept -> void* {
      auto* const self = static_cast<Call*>(user);
      try {
        self->workspace_ =
            empty(self->like_, {static_cast<std::int64_t>(bytes) + kPadding}, ScalarType::Byte);
      } catch (const std::exception&) {
        return nullptr;
      }
      const auto address = reinterpret_cast<std::uintptr_t>(self->workspace_->data_ptr());
      return reinterpret_cast<void*>((address + kPadding) & ~std::uintptr_t{kPadding});
    };
    call_.user = this;
    call_.platform = platform.value.empty() ? nullptr : platform.value.c_str();
    call_.config = config.value.empty() ? nullptr : config.value.c_str();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const attune_call* get() const { return &call_; }

 private:
  static constexpr std::int64_t kPadding = ATTUNE_WORKSPACE_ALIGNMENT - 1;
  attune_call call_ = {};
  Tensor like_;
  OptionalTensor workspace_;
};

inline void check(attune_status status) {
  if (status != ATTUNE_OK) throw std::runtime_error(attune_last_error());
}

}  // namespace attune_torch
