// One call of attune's over torch's tensors: views of them as attune.h has them, results and
// workspace from torch's allocator, on q's current stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
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
      throw std::runtime_error(std::string("attune: ") + name +
                               " has a type that no argument may have");
  }
}

/// The tensors of one call as attune.h wants them; owns what had to be copied.
class Tensors {
 public:
  enum class Layout { kAsIs, kLastTwoSwapped };

  /// A tensor that is read. One whose last dimension is not contiguous is copied: gradients of sums
  /// arrive with strides of 0. (Before the kernel, and not by the caller, since a compiler may
  /// change strides between tracing and the call.)
  const attune_tensor* input(const char* name, const Tensor& tensor) {
    const std::int64_t rank = tensor.dim();
    const bool strided = rank > 0 && tensor.size(rank - 1) > 1 && tensor.stride(rank - 1) != 1;
    return add(name, strided ? torch::stable::contiguous(tensor) : tensor, Layout::kAsIs);
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
  static constexpr std::int64_t kMostDimensions = 5;
  struct Entry {
    Tensor tensor;
    attune_tensor view = {};
    std::array<std::int64_t, kMostDimensions> shape = {}, strides = {};
  };

  const attune_tensor* add(const char* name, Tensor tensor, Layout layout) {
    const std::int64_t rank = tensor.dim();
    if (rank > kMostDimensions) {
      throw std::runtime_error(std::string("attune: ") + name + " has " + std::to_string(rank) +
                               " dimensions, at most 5 are expected");
    }
    Entry& entry = entries_.emplace_back();
    entry.tensor = std::move(tensor);
    for (std::int64_t i = 0; i < rank; ++i) {
      entry.shape[static_cast<std::size_t>(i)] = entry.tensor.size(i);
      entry.strides[static_cast<std::size_t>(i)] = entry.tensor.stride(i);
    }
    if (layout == Layout::kLastTwoSwapped && rank >= 2) {
      const auto last = static_cast<std::size_t>(rank - 1);
      std::swap(entry.shape[last], entry.shape[last - 1]);
      std::swap(entry.strides[last], entry.strides[last - 1]);
    }
    entry.view.data = entry.tensor.data_ptr();
    entry.view.device = device_of(entry.tensor);
    entry.view.ndim = static_cast<std::int32_t>(rank);
    entry.view.dtype = dtype_of(name, entry.tensor);
    entry.view.shape = entry.shape.data();
    entry.view.strides = entry.strides.data();
    return &entry.view;
  }

  std::deque<Entry> entries_;  // addresses stay
};

inline Tensor empty(const Tensor& like, const std::vector<std::int64_t>& shape,
                    std::optional<ScalarType> type = std::nullopt) {
  return torch::stable::new_empty(like, {shape.data(), shape.size()}, type);
}

inline std::vector<std::int64_t> shape_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return {sizes.begin(), sizes.end()};
}

/// How a call is made: the workspace is a tensor of torch's, held until the work is queued. The
/// allocator gives it to nobody else before that work is done, as its stream is the same.
class Call {
 public:
  Call(const Tensor& q, bool allow_tf32, const std::string& platform, const std::string& config)
      : like_(q) {
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
    call_.platform = platform.empty() ? nullptr : platform.c_str();
    call_.config = config.empty() ? nullptr : config.c_str();
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
