#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

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

/// The innermost dimensions whose elements lie as in a dense tensor, as one run of `length`, and the
/// view of the runs' first elements.
struct Runs {
  explicit Runs(const ConstTensorView& view) : outer(view) {
    int rank = view.rank();
    while (rank > 0 && (view.shape[rank - 1] == 1 || view.strides[rank - 1] == length)) {
      length *= view.shape[--rank];
    }
    outer.shape = Extents(std::span(view.shape.begin(), static_cast<std::size_t>(rank)));
    outer.strides = Extents(std::span(view.strides.begin(), static_cast<std::size_t>(rank)));
  }
  ConstTensorView outer;
  std::int64_t length = 1;
};

/// Calls visit(offset in elements) for the first element of each run of a view, in row-major order.
template <class Visit>
void for_each_run(const ConstTensorView& outer, Visit&& visit) {
  const std::int64_t count = element_count(outer.shape);
  std::array<std::int64_t, Extents::kMaxRank> index{};
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(offset);
    for (int dim = outer.rank() - 1; dim >= 0; --dim) {
      auto& at = index[static_cast<std::size_t>(dim)];
      offset += outer.strides[dim];
      if (++at < outer.shape[dim]) break;
      offset -= at * outer.strides[dim];
      at = 0;
    }
  }
}

/// Calls visit(data as a pointer to the type that it holds).
template <class Visit>
auto with_typed(const void* data, DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF16:
      return visit(static_cast<const f16*>(data));
    case DType::kBF16:
      return visit(static_cast<const bf16*>(data));
    case DType::kI32:
      return visit(static_cast<const std::int32_t*>(data));
    case DType::kI64:
      return visit(static_cast<const std::int64_t*>(data));
    case DType::kF32:
      break;
  }
  return visit(static_cast<const float*>(data));
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return float(value);
  }
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
  const auto width = static_cast<std::int64_t>(size_of(view.dtype));
  const auto* const first = static_cast<const std::byte*>(view.data);
  auto* to = static_cast<std::byte*>(result.view().data);
  const Runs runs(view);
  const auto gather = [&](const std::byte* source) {  // of host memory
    for_each_run(runs.outer, [&](std::int64_t offset) {
      to = std::copy_n(source + offset * width, runs.length * width, to);
    });
  };
  if (device.info().id == DeviceId{}) {
    gather(first);
    return result;
  }
  const auto [low, high] = extent_of(view);
  const auto bytes = static_cast<std::size_t>((high - low) * width);
  if (runs.outer.rank() == 0) {
    device.copy_to_host(to, first, bytes, nullptr);
    device.synchronize(nullptr);
    return result;
  }
  std::vector<std::byte> span(bytes);
  device.copy_to_host(span.data(), first + low * width, bytes, nullptr);
  device.synchronize(nullptr);
  gather(span.data() - low * width);
  return result;
}

double element_as_double(const ConstTensorView& view, std::int64_t index) {
  std::int64_t offset = 0;
  for (int dim = view.rank() - 1; dim >= 0; --dim) {
    offset += (index % view.shape[dim]) * view.strides[dim];
    index /= view.shape[dim];
  }
  return with_typed(view.data, view.dtype,
                    [&](const auto* values) { return as_double(values[offset]); });
}

std::vector<double> to_doubles(const ConstTensorView& view) {
  std::vector<double> doubles(static_cast<std::size_t>(element_count(view.shape)));
  if (view.empty()) return doubles;
  const Runs runs(view);
  with_typed(view.data, view.dtype, [&](const auto* values) {
    double* to = doubles.data();
    for_each_run(runs.outer, [&](std::int64_t offset) {
      const auto* const run = values + offset;
      to = std::transform(run, run + runs.length, to, [](auto value) { return as_double(value); });
    });
  });
  return doubles;
}

}  // namespace attune
