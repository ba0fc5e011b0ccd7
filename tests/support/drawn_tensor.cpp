#include "support/drawn_tensor.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include <attune/core/error.hpp>

namespace attune::test {
namespace {

/// `bytes` of host memory between two pages that may not be touched.
std::shared_ptr<std::byte> guarded(std::size_t bytes, bool at_end) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = (bytes + page - 1) / page * page, all = inner + 2 * page;
  void* const mapped = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  if (inner > 0 && mprotect(first + page, inner, PROT_READ | PROT_WRITE) != 0) {
    throw std::bad_alloc();
  }
  std::byte* const begin = first + page + (at_end ? inner - bytes : 0);
  return {begin, [mapped, all](std::byte*) { munmap(mapped, all); }};
}

std::shared_ptr<std::byte> allocated(std::size_t bytes, std::size_t shift, const Device& device) {
  auto* const first = static_cast<std::byte*>(device.allocate(bytes + shift + 1, nullptr));
  return {first + shift, [first, &device](std::byte*) { device.deallocate(first, nullptr); }};
}

/// Dimensions, the outermost in memory first.
std::vector<int> drawn_order(Draw& draw, LayoutKind kind, int rank, bool rows) {
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (kind == LayoutKind::kHeadsFirst && rank == 4) std::swap(order[1], order[2]);
  if (kind == LayoutKind::kAny) {
    std::shuffle(order.begin(), order.end() - (rows && rank > 0 ? 1 : 0), draw.bits());
  }
  return order;
}

}  // namespace

DrawnTensor::DrawnTensor(Draw& draw, LayoutKind kind, DType dtype, const Extents& shape,
                         const LayoutRules& rules)
    : dtype_(dtype),
      shape_(shape),
      strides_(shape),
      at_end_(draw.one_in(2)),
      shift_(kind == LayoutKind::kAny ? draw.between(0, 8) : 0) {
  const bool any = kind == LayoutKind::kAny;
  const std::vector<int> order = drawn_order(draw, kind, shape.rank(), rules.rows);
  std::int64_t step = 1, before = 0, behind = 0;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const bool is_row = rules.rows && *dim == shape.rank() - 1;
    std::int64_t stride = any && !is_row && draw.one_in(3) ? step + draw.between(1, 7) : step;
    if (any && !is_row && draw.one_in(6)) stride = -stride;
    if (any && !is_row && rules.repeats && draw.one_in(8)) stride = 0;
    strides_[*dim] = stride;
    if (shape[*dim] > 0) {
      (stride < 0 ? before : behind) += std::abs(stride) * (shape[*dim] - 1);
    }
    if (stride != 0) step = std::abs(stride) * std::max<std::int64_t>(shape[*dim], 1);
    if (any && shape[*dim] == 1 && draw.one_in(2)) {
      constexpr std::int64_t kAnything[] = {0, 1, -3, std::int64_t{1} << 40, 17};
      strides_[*dim] = draw.one_of(kAnything);
    }
  }
  const std::int64_t elements = element_count(shape);
  if (elements > 0) {
    first_ = before;
    image_.assign(static_cast<std::size_t>(before + behind + 1) * size_of(dtype), std::byte{0xff});
  }
  offsets_.reserve(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, offset = first_;
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
      offset += rest % shape[dim] * (shape[dim] == 1 ? 0 : strides_[dim]);
      rest /= shape[dim];
    }
    offsets_.push_back(offset);
  }
}

void DrawnTensor::set(std::int64_t i, double value) {
  std::byte* const to = image_.data() + byte_of(i);
  const auto narrow = static_cast<float>(value);
  if (dtype_ == DType::kF32) std::memcpy(to, &narrow, sizeof narrow);
  if (dtype_ == DType::kF16) *reinterpret_cast<f16*>(to) = f16(narrow);
  if (dtype_ == DType::kBF16) *reinterpret_cast<bf16*>(to) = bf16(narrow);
}

void DrawnTensor::set_integer(std::int64_t i, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  if (dtype_ == DType::kI32) std::memcpy(image_.data() + byte_of(i), &narrow, sizeof narrow);
  if (dtype_ == DType::kI64) std::memcpy(image_.data() + byte_of(i), &value, sizeof value);
}

double DrawnTensor::value_at(const std::byte* memory, std::int64_t i) const {
  const std::byte* const at = memory + byte_of(i);
  float value = 0;
  if (dtype_ == DType::kF32) std::memcpy(&value, at, sizeof value);
  if (dtype_ == DType::kF16) value = static_cast<float>(*reinterpret_cast<const f16*>(at));
  if (dtype_ == DType::kBF16) value = static_cast<float>(*reinterpret_cast<const bf16*>(at));
  return value;
}

std::vector<double> DrawnTensor::inputs() const {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count(); ++i) values.push_back(value_at(image_.data(), i));
  return values;
}

void DrawnTensor::place(const Device& device) {
  device_ = &device;
  const bool host = device.info().id.backend == "cpu";
  const std::size_t shift = static_cast<std::size_t>(shift_) * size_of(dtype_);
  memory_ = host ? guarded(image_.size(), at_end_) : allocated(image_.size(), shift, device);
  restore();
}

TensorView DrawnTensor::view() const {
  std::byte* const first = memory_.get() + first_ * static_cast<std::int64_t>(size_of(dtype_));
  return {count() == 0 ? nullptr : first, dtype_, shape_, strides_, device_->info().id};
}

void DrawnTensor::restore() {
  filled_ = image_;
  if (!filled_.empty()) {
    device_->copy_to_device(memory_.get(), filled_.data(), filled_.size(), nullptr);
  }
  device_->synchronize(nullptr);
}

void DrawnTensor::restore(std::byte poison) {
  filled_ = image_;
  for (std::int64_t i = 0; i < count(); ++i) {
    std::fill_n(filled_.begin() + static_cast<std::ptrdiff_t>(byte_of(i)), size_of(dtype_), poison);
  }
  if (!filled_.empty()) {
    device_->copy_to_device(memory_.get(), filled_.data(), filled_.size(), nullptr);
  }
  device_->synchronize(nullptr);
}

std::vector<std::byte> DrawnTensor::now() const {
  std::vector<std::byte> bytes(filled_.size());
  if (!bytes.empty()) device_->copy_to_host(bytes.data(), memory_.get(), bytes.size(), nullptr);
  device_->synchronize(nullptr);
  return bytes;
}

std::vector<double> DrawnTensor::outputs() const {
  const std::vector<std::byte> bytes = now();
  std::vector<double> values;
  for (std::int64_t i = 0; i < count(); ++i) values.push_back(value_at(bytes.data(), i));
  return values;
}

bool DrawnTensor::is_unchanged(std::int64_t i, const std::vector<std::byte>& now) const {
  const std::size_t at = byte_of(i);
  return std::memcmp(now.data() + at, filled_.data() + at, size_of(dtype_)) == 0;
}

std::string DrawnTensor::changed(bool outputs) const {
  std::vector<std::byte> bytes = now();
  for (std::int64_t i = 0; outputs && i < count(); ++i) {
    std::memcpy(bytes.data() + byte_of(i), filled_.data() + byte_of(i), size_of(dtype_));
  }
  if (bytes == filled_) return "";
  const auto [at, unused] = std::ranges::mismatch(bytes, filled_);
  return str("byte ", at - bytes.begin(), " of ", bytes.size());
}

}  // namespace attune::test
