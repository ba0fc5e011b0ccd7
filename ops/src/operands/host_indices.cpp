#include "host_indices.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace attune::ops {
namespace {

/// "row 3" or "row 3, token 1"
[[gnu::cold]] std::string place_of(const ConstTensorView& view, std::int64_t i) {
  if (view.rank() == 1) return str("row ", i);
  return str("row ", i / view.size(1), ", token ", i % view.size(1));
}

}  // namespace

std::int64_t index_at(const ConstTensorView& view, std::int64_t i) {
  const std::int64_t columns = view.rank() == 2 ? view.size(1) : 1;
  const std::int64_t within = view.rank() == 2 ? i % columns * view.stride(1) : 0;
  const std::int64_t offset = i / columns * view.stride(0) + within;
  if (view.dtype == DType::kI32) return static_cast<const std::int32_t*>(view.data)[offset];
  return static_cast<const std::int64_t*>(view.data)[offset];
}

void check_cu_seqlens(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                      const TokenBounds& of) {
  const std::int64_t last = view.size(0) - 1;
  if (const std::int64_t first = index_at(view, 0); first != 0) {
    check.refuse(name, "values must start at 0, got ", first);
  }
  for (std::int64_t i = 1; i <= last; ++i) {
    if (const std::int64_t value = index_at(view, i); value < index_at(view, i - 1)) {
      check.refuse(name, "values must not fall, got ", value, " after ", index_at(view, i - 1));
    }
  }
  const std::int64_t end = index_at(view, last);
  if (of.may_be_padded && end > of.tokens) {
    check.refuse(name, "values must not exceed the number of tokens, ", of.tokens, ", got ", end);
  }
  if (!of.may_be_padded && end != of.tokens) {
    check.refuse(name, "values must end at the number of tokens, ", of.tokens, ", got ", end);
  }
}

void check_same_indices(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                        std::string_view other_name, const ConstTensorView& other) {
  for (std::int64_t i = 0; i < view.size(0); ++i) {
    if (index_at(view, i) == index_at(other, i)) continue;
    check.refuse(name, "value ", i, " is ", index_at(view, i), ", expected ", index_at(other, i),
                 " as in ", other_name);
  }
}

void check_slot_indices(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                        std::int64_t slots) {
  // One bit a slot, a window of the pool at a time: one window for pools of up to 131,072 slots,
  // and no memory from the heap for any.
  constexpr std::int64_t kWordBits = 64;
  const std::int64_t indices = element_count(view.shape);
  std::array<std::uint64_t, 2048> seen;
  constexpr std::int64_t kWindow = kWordBits * static_cast<std::int64_t>(seen.size());
  for (std::int64_t first = 0; first == 0 || first < slots; first += kWindow) {
    const std::int64_t size = std::clamp<std::int64_t>(slots - first, 0, kWindow);
    std::fill_n(seen.begin(), (size + kWordBits - 1) / kWordBits, 0);
    for (std::int64_t i = 0; i < indices; ++i) {
      const std::int64_t slot = index_at(view, i);
      if (slot >= slots)
        check.refuse(name, place_of(view, i), " has slot ", slot, ", expected less than ", slots);
      if (slot < first || slot - first >= size) continue;
      std::uint64_t& word = seen[static_cast<std::size_t>((slot - first) / kWordBits)];
      const std::uint64_t bit = std::uint64_t{1}
                                << static_cast<unsigned>((slot - first) % kWordBits);
      if ((word & bit) != 0)
        check.refuse(name, "slot ", slot, " stands twice, the second time in ", place_of(view, i));
      word |= bit;
    }
  }
}

void check_counts(const CallCheck& check, std::string_view name, const ConstTensorView& view,
                  std::int64_t least, std::int64_t most) {
  for (std::int64_t i = 0; i < view.size(0); ++i) {
    const std::int64_t count = index_at(view, i);
    if (count < 0 || (count >= least && count <= most)) continue;
    check.refuse(name, "row ", i, " has ", count, ", expected ", least, " .. ", most,
                 ", or a negative number for padding");
  }
}

}  // namespace attune::ops
