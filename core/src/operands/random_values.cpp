#include <algorithm>
#include <cmath>

#include <attune/core/case_tensors.hpp>
#include <attune/core/parallel_for.hpp>

namespace attune {
namespace {

/// The output function of SplitMix64 (Steele et al., OOPSLA 2014): 64 well mixed bits of `index`.
std::uint64_t mix(std::uint64_t index) {
  std::uint64_t z = index * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// The sum of four even 16-bit numbers, centred: close to normal, and one hash a value.
float bell(std::uint64_t bits) {
  const std::uint64_t sum =
      (bits & 0xffffU) + (bits >> 16U & 0xffffU) + (bits >> 32U & 0xffffU) + (bits >> 48U);
  constexpr float kUnitDeviation = 1.7320508F / 65535.0F;
  return (static_cast<float>(sum) - 131070.0F) * kUnitDeviation;
}

float unit(std::uint64_t bits) { return static_cast<float>(bits >> 40U) * 0x1p-24F; }

template <class T, class Value>
void fill(Tensor& tensor, std::uint64_t stream, const Value& value) {
  constexpr std::int64_t kBlock = 1 << 16;
  const std::span<T> values = tensor.values<T>();
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for((count + kBlock - 1) / kBlock, usable_cores(), [&](std::int64_t block) {
    const std::int64_t end = std::min(count, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < end; ++i) {
      values[static_cast<std::size_t>(i)] = T(value(mix(stream + static_cast<std::uint64_t>(i))));
    }
  });
}

template <class Value>
Tensor filled(DType dtype, const Extents& shape, std::uint64_t stream, const Value& value) {
  Tensor tensor(dtype, shape);
  switch (dtype) {
    case DType::kF16:
      fill<f16>(tensor, stream, value);
      break;
    case DType::kBF16:
      fill<bf16>(tensor, stream, value);
      break;
    default:
      fill<float>(tensor, stream, value);
      break;
  }
  return tensor;
}

}  // namespace

Tensor RandomValues::normal(DType dtype, const Extents& shape, double deviation) {
  const auto factor = static_cast<float>(deviation);
  return filled(dtype, shape, mix(seed_ + mix(++streams_)),
                [factor](std::uint64_t bits) { return factor * bell(bits); });
}

Tensor RandomValues::uniform(DType dtype, const Extents& shape, double low, double high) {
  const auto from = static_cast<float>(low);
  const auto size = static_cast<float>(high - low);
  return filled(dtype, shape, mix(seed_ + mix(++streams_)),
                [from, size](std::uint64_t bits) { return from + size * unit(bits); });
}

double RandomValues::next() { return unit(mix(mix(seed_ + mix(++streams_)))); }

}  // namespace attune
