#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>

#include <attune/core/in_place.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace attune {
namespace {

/// The first that has all bits of its exponent: inf or NaN. One more in the exponent's last place
/// then carries into the sign. Blocks of a fixed number of bits are loops that the compiler
/// vectorizes, which one that may end early is not: outputs of candidates are large.
template <class T, class Bits>
std::optional<std::int64_t> first_not_finite(std::span<const T> values, Bits exponent,
                                             Bits last_place) {
  const auto carried = [&](Bits bits) {
    return static_cast<Bits>(static_cast<Bits>(bits & exponent) + last_place);
  };
  const auto has_carry = [&](Bits bits) { return bits > exponent + last_place - 1; };
  std::array<Bits, 256> block;
  auto first = values.begin();
  for (; values.end() - first >= std::ssize(block); first += std::ssize(block)) {
    std::memcpy(block.data(), &*first, sizeof(block));
    Bits any = 0;
    for (const Bits bits : block) any = static_cast<Bits>(any | carried(bits));
    if (has_carry(any)) break;
  }
  const auto found = std::find_if(
      first, values.end(), [&](T value) { return has_carry(carried(std::bit_cast<Bits>(value))); });
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

template <class T>
std::optional<std::int64_t> first_not_finite(std::span<const T> values) {
  if constexpr (std::is_same_v<T, f16>) {
    return first_not_finite<f16, std::uint16_t>(values, 0x7C00, 0x0400);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return first_not_finite<bf16, std::uint16_t>(values, 0x7F80, 0x0080);
  } else if constexpr (std::is_same_v<T, float>) {
    return first_not_finite<float, std::uint32_t>(values, 0x7F800000, 0x00800000);
  } else {
    return std::nullopt;  // integers
  }
}

/// Block by block: each is in the cache when it is read the second time.
template <class T>
Digest digest_of(std::span<const T> values) {
  constexpr std::size_t kBlock = std::size_t{1} << 15;
  Digest digest;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    digest.sum = XXH3_64bits_withSeed(block.data(), block.size_bytes(), digest.sum);
    if (digest.not_finite >= 0) continue;
    if (const auto found = first_not_finite(block)) {
      digest.not_finite = static_cast<std::int64_t>(begin) + *found;
    }
  }
  return digest;
}

/// Of a dense array in host memory.
Digest digest_of(const ConstTensorView& view) {
  const auto typed = [&]<class T>(const T* first) {
    return digest_of(std::span(first, static_cast<std::size_t>(element_count(view.shape))));
  };
  switch (view.dtype) {
    case DType::kF16:
      return typed(static_cast<const f16*>(view.data));
    case DType::kBF16:
      return typed(static_cast<const bf16*>(view.data));
    case DType::kI32:
      return typed(static_cast<const std::int32_t*>(view.data));
    case DType::kI64:
      return typed(static_cast<const std::int64_t*>(view.data));
    case DType::kF32:
      break;
  }
  return typed(static_cast<const float*>(view.data));
}

const InPlaceDevice* in_place(const Device& device) {
  return dynamic_cast<const InPlaceDevice*>(&device);
}

bool is_host(const Device& device) { return device.info().id == DeviceId{}; }

}  // namespace

std::vector<Digest> digests_of(std::span<const ConstTensorView> views, const Device& device) {
  if (const InPlaceDevice* there = in_place(device)) return there->digests(views);
  std::vector<Digest> digests;
  for (const ConstTensorView& view : views) {
    const bool is_there = is_host(device) && view.is_contiguous();
    digests.push_back(is_there ? digest_of(view) : digest_of(to_host(view, device).view()));
  }
  return digests;
}

void copy_within(const Device& device, void* to, const void* from, std::size_t bytes,
                 void* stream) {
  if (const InPlaceDevice* there = in_place(device)) return there->copy(to, from, bytes, stream);
  if (is_host(device)) return device.copy_to_device(to, from, bytes, stream);
  std::vector<std::byte> copy(bytes);
  device.copy_to_host(copy.data(), from, bytes, stream);
  device.synchronize(stream);
  device.copy_to_device(to, copy.data(), bytes, stream);
  device.synchronize(stream);
}

}  // namespace attune
