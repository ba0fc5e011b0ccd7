#include <algorithm>
#include <cstring>

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

/// Calls work(first, end) for blocks of `count` elements, on all cores.
template <class Work>
void for_blocks(std::size_t count, const Work& work) {
  constexpr std::size_t kBlock = 1 << 16;
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  parallel_for(static_cast<std::int64_t>(blocks), usable_cores(), [&](std::int64_t block) {
    const std::size_t first = static_cast<std::size_t>(block) * kBlock;
    work(first, std::min(count, first + kBlock));
  });
}

/// Values that are drawn; a tensor of more repeats them. A prime, so that rows differ from those that
/// they repeat.
constexpr std::size_t kMostDrawn = 1'048'583;

template <class T, class Value>
void fill(Tensor& tensor, std::uint64_t stream, const Value& value) {
  const std::span<T> values = tensor.values<T>();
  const std::span<T> drawn = values.first(std::min(values.size(), kMostDrawn));
  for_blocks(drawn.size(), [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) drawn[i] = T(value(mix(stream + i)));
  });
  const std::span<T> rest = values.subspan(drawn.size());
  for_blocks(rest.size(), [&](std::size_t first, std::size_t end) {
    while (first < end) {
      const std::span<T> from = drawn.subspan(first % drawn.size());
      const std::size_t count = std::min(from.size(), end - first);
      std::memcpy(&rest[first], from.data(), count * sizeof(T));
      first += count;
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

Tensor copy_of(const Tensor& tensor) {
  Tensor copy(tensor.dtype(), tensor.shape());
  auto* const to = static_cast<std::byte*>(copy.view().data);
  const auto* const from = static_cast<const std::byte*>(tensor.view().data);
  for_blocks(tensor.bytes(), [&](std::size_t first, std::size_t end) {
    std::memcpy(to + first, from + first, end - first);
  });
  return copy;
}

constinit thread_local RepeatedValues* repeated = nullptr;

}  // namespace

class RepeatedValues::Made {
 public:
  /// A copy of what these made before, or else of what `make` returns.
  template <class Make>
  Tensor get(std::uint64_t stream, DType dtype, const Extents& shape,
             const RandomValues::Range& range, const Make& make) {
    for (const Entry& entry : entries_) {
      if (entry.stream == stream && entry.range == range && entry.values.dtype() == dtype &&
          entry.values.shape() == shape) {
        return copy_of(entry.values);
      }
    }
    return copy_of(entries_.emplace_back(Entry{stream, range, make()}).values);
  }

 private:
  struct Entry {
    std::uint64_t stream;
    RandomValues::Range range;
    Tensor values;
  };
  std::vector<Entry> entries_;
};

RepeatedValues::RepeatedValues() : made_(std::make_unique<Made>()), outer_(repeated) {
  repeated = this;
}

RepeatedValues::~RepeatedValues() { repeated = outer_; }

Tensor RandomValues::next_tensor(DType dtype, const Extents& shape, const Range& range) {
  const std::uint64_t stream = mix(seed_ + mix(++streams_));
  const auto make = [&] {
    const float from = range.from;
    const float size = range.size;
    return range.even
               ? filled(dtype, shape, stream,
                        [from, size](std::uint64_t bits) { return from + size * unit(bits); })
               : filled(dtype, shape, stream,
                        [from, size](std::uint64_t bits) { return from + size * bell(bits); });
  };
  if (repeated == nullptr) return make();
  return repeated->made_->get(stream, dtype, shape, range, make);
}

Tensor RandomValues::normal(DType dtype, const Extents& shape, double deviation) {
  return next_tensor(dtype, shape,
                     {.even = false, .from = 0, .size = static_cast<float>(deviation)});
}

Tensor RandomValues::uniform(DType dtype, const Extents& shape, double low, double high) {
  return next_tensor(
      dtype, shape,
      {.even = true, .from = static_cast<float>(low), .size = static_cast<float>(high - low)});
}

double RandomValues::next() { return unit(mix(mix(seed_ + mix(++streams_)))); }

}  // namespace attune
