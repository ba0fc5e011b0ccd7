#include <algorithm>
#include <cmath>
#include <cstring>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

std::ostream& operator<<(std::ostream& out, const DeviceId& id) {
  return out << id.backend << ':' << id.index;
}

Extents::Extents(std::span<const std::int64_t> values) {
  if (values.size() > kMaxRank) {
    throw InvalidArgument(str("shape: rank ", values.size(), ", expected at most ", kMaxRank));
  }
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

std::ostream& operator<<(std::ostream& out, const Extents& extents) {
  out << '[';
  for (int i = 0; i < extents.rank(); ++i) out << (i == 0 ? "" : ", ") << extents[i];
  return out << ']';
}

std::int64_t element_count(const Extents& shape) {
  std::int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument(str("shape ", shape, " has a negative extent"));
    empty = empty || extent == 0;
    overflow = __builtin_mul_overflow(count, extent, &count) || overflow;
  }
  if (empty) return 0;
  if (overflow) throw InvalidArgument(str("shape ", shape, " has more than 2^63 - 1 elements"));
  return count;
}

Extents contiguous_strides(const Extents& shape) {
  Extents strides = shape;
  // Wrapping arithmetic: a shape too large for memory is reported by element_count(), not here.
  std::uint64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[i], 1));
  }
  return strides;
}

template <class Pointer>
bool BasicTensorView<Pointer>::empty() const {
  return std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent == 0; });
}

template <class Pointer>
bool BasicTensorView<Pointer>::is_contiguous() const {
  if (empty()) return true;
  std::int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

template <class Pointer>
BasicTensorView<Pointer> BasicTensorView<Pointer>::permute(std::initializer_list<int> order) const {
  BasicTensorView result = *this;
  unsigned seen = 0;
  int dim = 0;
  for (const int from : order) {
    if (from < 0 || from >= rank() || ((seen >> static_cast<unsigned>(from)) & 1U) != 0) break;
    seen |= 1U << static_cast<unsigned>(from);
    result.shape[dim] = shape[from];
    result.strides[dim] = strides[from];
    ++dim;
  }
  if (dim != rank() || order.size() != static_cast<std::size_t>(rank())) {
    throw InvalidArgument(str("permute: expected a permutation of the ", rank(), " dimensions"));
  }
  return result;
}

template <class Pointer>
BasicTensorView<Pointer> BasicTensorView<Pointer>::slice(int dim, std::int64_t begin,
                                                         std::int64_t end) const {
  if (dim < 0 || dim >= rank() || begin < 0 || begin > end || end > shape[dim]) {
    throw InvalidArgument(str("slice: [", begin, ", ", end, ") of dimension ", dim, " of ", shape));
  }
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte,
                                  std::byte>;
  BasicTensorView result = *this;
  result.shape[dim] = end - begin;
  if (data != nullptr) {
    result.data =
        static_cast<Byte*>(data) + begin * strides[dim] * static_cast<std::int64_t>(size_of(dtype));
  }
  return result;
}

template <class Pointer>
BasicTensorView<Pointer> BasicTensorView<Pointer>::unsqueeze(int dim) const {
  if (dim < 0 || dim > rank() || rank() == Extents::kMaxRank) {
    throw InvalidArgument(str("unsqueeze: dimension ", dim, " of ", shape));
  }
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  std::vector<std::int64_t> steps(strides.begin(), strides.end());
  const std::int64_t step = dim < rank() ? shape[dim] * strides[dim] : 1;
  extents.insert(extents.begin() + dim, 1);
  steps.insert(steps.begin() + dim, step);
  BasicTensorView result = *this;
  result.shape = Extents(std::span<const std::int64_t>(extents));
  result.strides = Extents(std::span<const std::int64_t>(steps));
  return result;
}

template struct BasicTensorView<void*>;
template struct BasicTensorView<const void*>;

Tensor::Tensor(DType dtype, const Extents& shape) : Tensor(dtype, shape, cpu_device()) {}

Tensor::Tensor(DType dtype, const Extents& shape, const Device& device, void* stream)
    : view_(static_cast<void*>(nullptr), dtype, shape, device.info().id),
      device_(&device),
      stream_(stream) {
  const std::int64_t count = element_count(shape);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(count, static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    throw InvalidArgument(str("shape ", shape, " of ", dtype, " has more than 2^63 - 1 bytes"));
  }
  bytes_ = static_cast<std::size_t>(bytes);
  if (bytes_ != 0) view_.data = device.allocate(bytes_, stream);
}

Tensor::Tensor(Tensor&& other) noexcept
    : view_(other.view_), bytes_(other.bytes_), device_(other.device_), stream_(other.stream_) {
  other.view_ = {};
  other.bytes_ = 0;
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this != &other) {
    release();
    view_ = other.view_;
    bytes_ = other.bytes_;
    device_ = other.device_;
    stream_ = other.stream_;
    other.view_ = {};
    other.bytes_ = 0;
  }
  return *this;
}

Tensor::~Tensor() { release(); }

void Tensor::release() noexcept {
  if (view_.data != nullptr) device_->deallocate(view_.data, stream_);
  view_.data = nullptr;
}

void Tensor::assign(std::span<const std::byte> values) {
  if (values.size() != bytes_) {
    throw InvalidArgument(str("tensor of shape ", view_.shape, ": ",
                              values.size() / size_of(view_.dtype), " values given, expected ",
                              element_count(view_.shape)));
  }
  if (!values.empty()) std::memcpy(view_.data, values.data(), values.size());
}

void Tensor::check_host(DType dtype) const {
  if (dtype != view_.dtype) {
    throw InvalidArgument(str("tensor holds ", view_.dtype, ", asked for ", dtype));
  }
  if (view_.data != nullptr && view_.device != DeviceId{}) {
    throw InvalidArgument(str("tensor is on ", view_.device, ", not in host memory"));
  }
}

namespace {

/// Calls visit(offset in elements) for each element of a view in row-major order.
template <class Visit>
void for_each_offset(const ConstTensorView& view, Visit&& visit) {
  const std::int64_t count = element_count(view.shape);
  std::array<std::int64_t, Extents::kMaxRank> index{};
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(offset);
    for (int dim = view.rank() - 1; dim >= 0; --dim) {
      auto& at = index[static_cast<std::size_t>(dim)];
      offset += view.strides[dim];
      if (++at < view.shape[dim]) break;
      offset -= at * view.strides[dim];
      at = 0;
    }
  }
}

double load_as_double(const void* data, DType dtype, std::int64_t offset) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[offset];
    case DType::kF16:
      return float(static_cast<const f16*>(data)[offset]);
    case DType::kBF16:
      return float(static_cast<const bf16*>(data)[offset]);
    case DType::kI32:
      return static_cast<const std::int32_t*>(data)[offset];
    case DType::kI64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[offset]);
  }
  return 0;
}

/// First and one past the last element that a view touches, relative to its data.
std::pair<std::int64_t, std::int64_t> extent_of(const ConstTensorView& view) {
  std::int64_t low = 0;
  std::int64_t high = 1;
  for (int dim = 0; dim < view.rank(); ++dim) {
    const std::int64_t reach = (view.shape[dim] - 1) * view.strides[dim];
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

}  // namespace

Tensor to_host(const ConstTensorView& view, const Device& device) {
  Tensor result(view.dtype, view.shape);
  if (view.empty()) return result;
  const std::size_t width = size_of(view.dtype);
  const auto copy = [&](const std::byte* source) {  // gathers strided elements of host memory
    auto* to = static_cast<std::byte*>(result.view().data);
    for_each_offset(view, [&](std::int64_t offset) {
      std::memcpy(to, source + offset * static_cast<std::int64_t>(width), width);
      to += width;
    });
  };
  if (device.info().id == DeviceId{}) {
    copy(static_cast<const std::byte*>(view.data));
    return result;
  }
  const auto [low, high] = extent_of(view);
  std::vector<std::byte> span(static_cast<std::size_t>(high - low) * width);
  const auto* first =
      static_cast<const std::byte*>(view.data) + low * static_cast<std::int64_t>(width);
  device.copy_to_host(span.data(), first, span.size(), nullptr);
  device.synchronize(nullptr);
  copy(span.data() - low * static_cast<std::int64_t>(width));
  return result;
}

double element_as_double(const ConstTensorView& view, std::int64_t index) {
  std::int64_t offset = 0;
  for (int dim = view.rank() - 1; dim >= 0; --dim) {
    offset += (index % view.shape[dim]) * view.strides[dim];
    index /= view.shape[dim];
  }
  return load_as_double(view.data, view.dtype, offset);
}

std::vector<double> to_doubles(const ConstTensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(element_count(view.shape)));
  for_each_offset(view, [&](std::int64_t offset) {
    values.push_back(load_as_double(view.data, view.dtype, offset));
  });
  return values;
}

}  // namespace attune
