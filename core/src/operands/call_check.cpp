#include <bit>
#include <span>
#include <string>

#include <attune/core/call_check.hpp>

#include "memory_overlap.hpp"

namespace attune {
namespace {

bool fits(const Extents& shape, std::span<const Dim> expected) {
  if (shape.rank() != static_cast<int>(expected.size())) return false;
  int dim = 0;
  for (const Dim& extent : expected) {
    const std::int64_t size = shape[dim++];
    if (size < 0 || (extent.size != Dim::kAny && extent.size != size)) return false;
  }
  return true;
}

std::string text(std::span<const Dim> dims) {
  std::string out = "[";
  for (const Dim& dim : dims) {
    if (out.size() > 1) out += ", ";
    out += dim.size == Dim::kAny ? std::string(dim.name) : std::to_string(dim.size);
  }
  return out + "]";
}

/// Whether two views are one array: strides of single elements do not count.
bool same_array(const ViewRef& a, const ViewRef& b) {
  if (a.data() != b.data() || a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int dim = 0; dim < a.rank(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

/// As ==, without a call of memcmp: this is asked for each tensor of each launch.
bool same_device(const DeviceId& a, const DeviceId& b) {
  using Words = std::array<std::uint64_t, 2>;
  static_assert(sizeof(Words) == sizeof(ShortName));
  return a.index == b.index && std::bit_cast<Words>(a.backend) == std::bit_cast<Words>(b.backend);
}

bool count_fits(const Extents& shape) {
  std::int64_t count = 1;
  bool overflow = false;
  for (const std::int64_t extent : shape) {
    if (extent == 0) return true;
    overflow = __builtin_mul_overflow(count, extent, &count) || overflow;
  }
  return !overflow;
}

}  // namespace

void CallCheck::shape(std::string_view name, const ViewRef& view, std::span<const Dim> expected,
                      std::string_view when) const {
  if (fits(view.shape(), expected)) return;
  refuse(name, "shape ", view.shape(), ", expected ", text(expected), when);
}

void CallCheck::dtype(std::string_view name, const ViewRef& view, DType expected,
                      std::string_view whose) const {
  if (view.dtype() == expected) return;
  refuse(name, "dtype ", view.dtype(), ", expected ", expected, whose);
}

void CallCheck::index_dtype(std::string_view name, const ViewRef& view) const {
  if (view.dtype() == DType::kI32 || view.dtype() == DType::kI64) return;
  refuse(name, "dtype ", view.dtype(), ", expected i32 or i64");
}

void CallCheck::dense_rows(std::string_view name, const ViewRef& view) const {
  const int last = view.rank() - 1;
  if (view.stride(last) == 1 || view.size(last) <= 1 || view.empty()) return;
  refuse(name, "strides ", view.strides(), ", expected a contiguous last dimension (stride 1)");
}

CallCheck::Memory CallCheck::memory_of(std::string_view name, const ViewRef& view) const {
  Memory memory;
  memory.dense = dense_address_range(view, memory.range);
  if (!memory.dense) {
    if (!count_fits(view.shape())) {
      refuse(name, "shape ", view.shape(), ", expected at most 2^63 - 1 elements");
    }
    if (!address_range(view, memory.range)) {
      refuse(name, "shape ", view.shape(), " with strides ", view.strides(),
             " spans more than 2^63 - 1 bytes");
    }
  }
  if (level_ == CheckLevel::kMetadata || memory.range.first == memory.range.end) return memory;
  if (view.data() == nullptr) refuse(name, "null pointer to a tensor of shape ", view.shape());
  const std::size_t width = size_of(view.dtype());  // a power of two
  if ((reinterpret_cast<std::uintptr_t>(view.data()) & (width - 1)) != 0) {
    refuse(name, "address ", view.data(), ", expected a multiple of ", width, " bytes");
  }
  return memory;
}

void CallCheck::on_device(std::string_view name, const ViewRef& view) const {
  if (count_ == 0 || same_device(view.device(), seen_[0].seen.view.device())) return;
  refuse(name, "on device ", view.device(), ", expected ", seen_[0].seen.view.device(), " (",
         seen_[0].seen.name, "'s)");
}

void CallCheck::input(std::string_view name, const ViewRef& view) {
  on_device(name, view);
  remember(name, view, memory_of(name, view));
}

void CallCheck::host_input(std::string_view name, const ViewRef& view) {
  if (view.device() != DeviceId{}) {
    refuse(name, "on device ", view.device(), ", expected host memory (", DeviceId{}, ")");
  }
  remember(name, view, memory_of(name, view));
}

void CallCheck::output(std::string_view name, const ViewRef& view) {
  output_or_in_place(name, view, {});
}

void CallCheck::output_or_in_place(std::string_view name, const ViewRef& view,
                                   std::string_view in_place_of) {
  on_device(name, view);
  const Memory memory = memory_of(name, view);
  if (!memory.dense && overlaps_itself(view)) {
    refuse(name, "shape ", view.shape(), " with strides ", view.strides(),
           " has elements that share memory, expected an output where none do");
  }
  apart_from_others({name, view, memory}, in_place_of);
  remember(name, view, memory);
}

void CallCheck::summed_output(std::string_view name, const ViewRef& view) {
  if (view.stride(0) != 0) return output(name, view);
  on_device(name, view);
  const Memory memory = memory_of(name, view);
  apart_from_others({name, view, memory}, {});
  remember(name, view, memory);
}

void CallCheck::apart_from_others(const Seen& output, std::string_view in_place_of) const {
  if (level_ == CheckLevel::kMetadata) return;
  const AddressRange& own = output.memory.range;
  for (const Slot& slot : std::span(seen_).first(count_)) {
    const Seen& other = slot.seen;
    const AddressRange& theirs = other.memory.range;
    if (own.end <= theirs.first || theirs.end <= own.first) continue;
    const bool may_be_in_place = !in_place_of.empty() && other.name == in_place_of;
    if (may_be_in_place && same_array(output.view, other.view)) continue;
    if (!same_device(output.view.device(), other.view.device())) continue;
    if (!share_memory(output.view, other.view)) continue;
    if (may_be_in_place) {
      refuse(output.name, "overlaps ", other.name,
             ", expected exactly the same array or none of it");
    }
    refuse(output.name, "overlaps ", other.name, ", expected memory of its own");
  }
}

}  // namespace attune
