// The tensors of a case: memory of their own on one device, in any layout.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// How a tensor is laid out in memory.
struct Placement {
  Layout layout =
      Layout::kBthd;     // kBhtd: the two dimensions before the last swapped; kStrided: rows padded
  bool shifted = false;  // by one element, so that no row is aligned
};

/// Pointers that it returns are valid as long as it, also once it has been moved.
class CaseTensors {
 public:
  explicit CaseTensors(const Device& device) : device_(&device) {}

  const Device& device() const { return *device_; }

  /// A copy of `values`, which are dense and in host memory.
  const ConstTensorView* input(std::string name, Tensor values, const Placement& placement = {});
  const TensorView* output(std::string name, DType dtype, const Extents& shape,
                           const Placement& placement = {});
  /// An output that starts out as `values`, and is reset to them.
  const TensorView* updated(std::string name, Tensor values, const Placement& placement = {});

  void reset(std::byte poison);
  std::vector<NamedTensor> outputs() const;

 private:
  struct Entry {
    std::string name;
    Tensor memory;  // everything between the first and the last element
    TensorView view;
    ConstTensorView const_view;
    bool is_output = false;
    Tensor initial;  // host copy of `memory`, of an updated tensor
  };

  Entry& add(std::string name, DType dtype, const Extents& shape, const Placement& placement);
  Entry& add_values(std::string name, Tensor values, const Placement& placement);

  const Device* device_;
  std::deque<Entry> entries_;
};

}  // namespace attune::ops
