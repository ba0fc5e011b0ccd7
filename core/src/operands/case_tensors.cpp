#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <attune/core/case_tensors.hpp>
#include <attune/core/in_place.hpp>

namespace attune {
namespace {

/// Strides of a tensor of `shape` that is dense once its dims a and b are swapped.
Extents swapped_strides(Extents shape, int a, int b) {
  std::swap(shape[a], shape[b]);
  Extents strides = contiguous_strides(shape);
  std::swap(strides[a], strides[b]);
  return strides;
}

/// Strides of a tensor cut out of a larger one: each row is followed by a gap of at least 16 bytes,
/// and the rows of an outer dimension by one more row. Rows stay multiples of 16 bytes apart.
Extents padded_strides(const Extents& shape, DType dtype) {
  const std::int64_t step = 16 / static_cast<std::int64_t>(size_of(dtype));
  Extents strides = shape;
  const int last = shape.rank() - 1;
  strides[last] = 1;
  std::int64_t row = (shape[last] / step + 2) * step;
  for (int dim = last - 1; dim >= 0; --dim) {
    strides[dim] = row;
    row *= shape[dim] + (dim == last - 1 ? 1 : 0);
  }
  return strides;
}

Extents strides_of(const Extents& shape, DType dtype, Storage::Order order) {
  using Order = Storage::Order;
  if (order == Order::kSwapped && shape.rank() == 4) return swapped_strides(shape, 1, 2);
  if (order == Order::kPadded && shape.rank() > 1) return padded_strides(shape, dtype);
  return contiguous_strides(shape);
}

/// Elements from the first to the last, both included.
std::int64_t reach(const Extents& shape, const Extents& strides) {
  if (element_count(shape) == 0) return 0;
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.rank(); ++dim) last += (shape[dim] - 1) * strides[dim];
  return last + 1;
}

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.data); }

/// Copies dense rows to where `to` has them.
void scatter_rows(const Tensor& from, const TensorView& to) {
  const int last = to.rank() - 1;
  const auto width = static_cast<std::int64_t>(size_of(to.dtype));
  const std::int64_t row = to.size(last);
  const std::int64_t rows = element_count(to.shape) / std::max<std::int64_t>(row, 1);
  const auto* source = static_cast<const std::byte*>(from.view().data);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t offset = 0;
    std::int64_t index = r;
    for (int dim = last - 1; dim >= 0; --dim) {
      offset += index % to.size(dim) * to.stride(dim);
      index /= to.size(dim);
    }
    std::memcpy(bytes_of(to) + offset * width, source + r * row * width,
                static_cast<std::size_t>(row * width));
  }
}

}  // namespace

CaseTensors::Entry& CaseTensors::add(std::string name, DType dtype, const Extents& shape,
                                     const Storage& storage) {
  Entry entry;
  entry.name = std::move(name);
  const Extents strides = strides_of(shape, dtype, storage.order);
  const std::int64_t shift = storage.misaligned ? 1 : 0;
  const std::int64_t elements = reach(shape, strides);
  entry.memory = Tensor(dtype, {elements == 0 ? 0 : elements + shift}, *device_);
  entry.view = TensorView(entry.memory.view().data, dtype, shape, strides, device_->info().id);
  if (elements != 0) {
    entry.view.data = bytes_of(entry.view) + shift * static_cast<std::int64_t>(size_of(dtype));
  }
  return entries_.emplace_back(std::move(entry));
}

CaseTensors::Entry& CaseTensors::add_values(std::string name, Tensor values,
                                            const Storage& storage) {
  Entry& entry = add(std::move(name), values.dtype(), values.shape(), storage);
  if (entry.memory.bytes() == 0) return entry;
  if (storage.order == Storage::Order::kDense && !storage.misaligned) {
    entry.initial = std::move(values);
  } else {
    entry.initial = Tensor(values.dtype(), entry.memory.shape());
    std::memset(entry.initial.view().data, 0xff, entry.initial.bytes());  // gaps are NaN
    TensorView placed = entry.view;
    placed.data =
        bytes_of(entry.initial.view()) + (bytes_of(entry.view) - bytes_of(entry.memory.view()));
    scatter_rows(values, placed);
  }
  device_->copy_to_device(entry.memory.view().data, entry.initial.view().data, entry.memory.bytes(),
                          nullptr);
  device_->synchronize(nullptr);
  return entry;
}

const TensorView* CaseTensors::input(std::string name, Tensor values, const Storage& storage) {
  Entry& entry = add_values(std::move(name), std::move(values), storage);
  entry.initial = Tensor();
  return &entry.view;
}

const TensorView* CaseTensors::output(std::string name, DType dtype, const Extents& shape,
                                      const Storage& storage) {
  Entry& entry = add(std::move(name), dtype, shape, storage);
  entry.is_output = true;
  return &entry.view;
}

const TensorView* CaseTensors::updated(std::string name, Tensor values, const Storage& storage) {
  Entry& entry = add_values(std::move(name), std::move(values), storage);
  entry.is_output = true;
  if (device_->info().id != DeviceId{} && entry.memory.bytes() != 0) keep_on_device(entry);
  return &entry.view;
}

/// What an entry is reset to, as long as the device has room for it. States are large, and every
/// check of a candidate resets them twice.
void CaseTensors::keep_on_device(Entry& entry) {
  try {
    Tensor kept(entry.memory.dtype(), entry.memory.shape(), *device_);
    copy_within(*device_, kept.view().data, entry.memory.view().data, kept.bytes(), nullptr);
    device_->synchronize(nullptr);
    entry.initial = std::move(kept);
  } catch (const std::bad_alloc&) {
    return;  // the host's copy stays what it is reset to
  }
}

void CaseTensors::reset(std::byte poison) {
  for (Entry& entry : entries_) {
    if (!entry.is_output || entry.memory.bytes() == 0) continue;
    void* const memory = entry.memory.view().data;
    const ConstTensorView initial = entry.initial.view();
    if (entry.initial.bytes() == 0) {
      device_->fill(memory, poison, entry.memory.bytes(), nullptr);
    } else if (initial.device == device_->info().id) {
      copy_within(*device_, memory, initial.data, entry.memory.bytes(), nullptr);
    } else {
      device_->copy_to_device(memory, initial.data, entry.memory.bytes(), nullptr);
    }
  }
  device_->synchronize(nullptr);
}

std::vector<NamedTensor> CaseTensors::outputs() const {
  std::vector<NamedTensor> found;
  for (const Entry& entry : entries_) {
    if (entry.is_output) found.push_back(NamedTensor{entry.name, entry.view});
  }
  return found;
}

}  // namespace attune
