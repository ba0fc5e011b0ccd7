// Where arrays of any rank, width and strides meet, against a list of every byte. No element is
// read, so most of these arrays are nowhere.
#include "operands/memory_overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace attune {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

ConstTensorView array_at(std::uintptr_t address, DType dtype, const Extents& shape,
                         const Extents& strides) {
  return {reinterpret_cast<const void*>(address), dtype, shape, strides};
}

std::vector<std::int64_t> addresses(const ConstTensorView& view) {
  const auto width = static_cast<std::int64_t>(size_of(view.dtype));
  std::vector<std::int64_t> found{
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data))};
  for (int dim = 0; dim < view.rank(); ++dim) {
    std::vector<std::int64_t> more;
    for (std::int64_t i = 0; i < view.size(dim); ++i) {
      const std::int64_t step = i == 0 ? 0 : i * view.stride(dim) * width;
      for (const std::int64_t address : found) more.push_back(address + step);
    }
    found = std::move(more);
  }
  return found;
}

std::set<std::int64_t> bytes(const ConstTensorView& view) {
  std::set<std::int64_t> found;
  for (const std::int64_t address : addresses(view)) {
    for (std::size_t i = 0; i < size_of(view.dtype); ++i) {
      found.insert(address + static_cast<std::int64_t>(i));
    }
  }
  return found;
}

bool share_a_byte(const ConstTensorView& a, const ConstTensorView& b) {
  const std::set<std::int64_t> of_a = bytes(a);
  const std::set<std::int64_t> of_b = bytes(b);
  return std::any_of(of_b.begin(), of_b.end(), [&](auto byte) { return of_a.contains(byte); });
}

class Arrays {
 public:
  explicit Arrays(std::uint64_t seed) : random_(seed) {}

  /// Of at most 48 elements, within some hundred bytes of 10,000.
  ConstTensorView any() {
    constexpr DType kTypes[] = {DType::kF16, DType::kF32, DType::kI64};
    ConstTensorView view;
    view.dtype = kTypes[below(3)];
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    std::int64_t count = 1;
    for (std::int64_t rank = below(6); rank > 0; --rank) {
      const std::int64_t size = 1 + below(4);
      if (count * size > 48) break;
      count *= size;
      shape.push_back(size);
      strides.push_back(size == 1 && below(2) == 0 ? kHuge : below(40) - 12);
    }
    view.shape = Extents(shape);
    view.strides = Extents(strides);
    view.data = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(10'000 + below(300)));
    return view;
  }

 private:
  std::int64_t below(std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random_);
  }
  std::mt19937_64 random_;
};

TEST(MemoryOverlap, IsFoundExactlyWhereAByteIsShared) {
  Arrays arrays(3);
  int shared = 0;
  int interleaved = 0;  // apart, though their ranges are not
  for (int i = 0; i < 3000; ++i) {
    const ConstTensorView a = arrays.any();
    const ConstTensorView b = arrays.any();
    const bool expected = share_a_byte(a, b);
    ASSERT_EQ(share_memory(a, b), expected)
        << a.dtype << a.shape << a.strides << " and " << b.dtype << b.shape << b.strides;
    AddressRange of_a;
    AddressRange of_b;
    ASSERT_TRUE(address_range(a, of_a) && address_range(b, of_b));
    const bool meet = of_a.first < of_b.end && of_b.first < of_a.end;
    shared += expected ? 1 : 0;
    interleaved += meet && !expected ? 1 : 0;
  }
  EXPECT_GT(shared, 300);
  EXPECT_GT(interleaved, 100);
}

TEST(MemoryOverlap, ARangeIsFromTheFirstByteToTheLast) {
  Arrays arrays(4);
  int dense = 0;
  for (int i = 0; i < 3000; ++i) {
    const ConstTensorView view = arrays.any();
    const std::set<std::int64_t> all = bytes(view);
    AddressRange range;
    ASSERT_TRUE(address_range(view, range));
    ASSERT_EQ(range.first, *all.begin()) << view.shape << view.strides;
    ASSERT_EQ(range.end, *all.rbegin() + 1) << view.shape << view.strides;
    AddressRange quick;
    if (!dense_address_range(view, quick)) continue;
    ++dense;
    ASSERT_EQ(quick.first, range.first) << view.shape << view.strides;
    ASSERT_EQ(quick.end, range.end) << view.shape << view.strides;
  }
  EXPECT_GT(dense, 100);
}

TEST(MemoryOverlap, WithinAnArrayIsNeverOverlooked) {
  Arrays arrays(5);
  int twice = 0;
  for (int i = 0; i < 3000; ++i) {
    const ConstTensorView view = arrays.any();
    std::vector<std::int64_t> all = addresses(view);
    std::sort(all.begin(), all.end());
    if (std::adjacent_find(all.begin(), all.end()) == all.end()) continue;
    ++twice;
    ASSERT_TRUE(overlaps_itself(view)) << view.shape << view.strides;
  }
  EXPECT_GT(twice, 300);
}

TEST(MemoryOverlap, DimensionsThatNestDoNotOverlapInWhateverOrder) {
  const Extents strides = {1, -12, 4, 60, 0};
  const ConstTensorView view = array_at(9000, DType::kF32, {4, 5, 3, 2, 1}, strides);
  EXPECT_FALSE(overlaps_itself(view));
  ConstTensorView closer = view;
  closer.strides = {1, -11, 4, 60, 0};  // rows of 12
  EXPECT_TRUE(overlaps_itself(closer));
  closer.strides = {1, -12, 4, 59, 0};  // planes of 60
  EXPECT_TRUE(overlaps_itself(closer));
  closer.strides = {0, -12, 4, 60, 0};
  EXPECT_TRUE(overlaps_itself(closer));
  closer.shape = {4, 5, 3, 0, 1};
  EXPECT_FALSE(overlaps_itself(closer)) << "it has no elements";
}

TEST(MemoryOverlap, DenseArraysAreToldByTheirStrides) {
  AddressRange range;
  EXPECT_TRUE(dense_address_range(array_at(64, DType::kF32, {2, 3, 4}, {12, 4, 1}), range));
  EXPECT_EQ(range.first, 64);
  EXPECT_EQ(range.end, 64 + 4 * 24);
  EXPECT_TRUE(dense_address_range(array_at(64, DType::kF32, {2, 1, 4}, {4, 99, 1}), range));
  EXPECT_FALSE(dense_address_range(array_at(64, DType::kF32, {2, 3, 4}, {13, 4, 1}), range));
  EXPECT_FALSE(dense_address_range(array_at(64, DType::kF32, {2, 3, 4}, {4, 8, 1}), range));
  EXPECT_FALSE(dense_address_range(array_at(64, DType::kF32, {2, 3}, {3, -1}), range));
  EXPECT_FALSE(dense_address_range(array_at(64, DType::kF16, {kHuge / 2, 3}, {3, 1}), range));
  EXPECT_FALSE(dense_address_range(array_at(64, DType::kF32, {kHuge / 4, 1}, {1, 1}), range))
      << "ends beyond 2^63 - 1";
}

TEST(MemoryOverlap, OfNothingIsNone) {
  const ConstTensorView some = array_at(4096, DType::kF32, {4}, {1});
  const ConstTensorView none = array_at(4096, DType::kF32, {2, 0}, {1, 1});
  EXPECT_FALSE(share_memory(some, none));
  EXPECT_FALSE(share_memory(none, some));
  AddressRange range{1, 2};
  EXPECT_TRUE(address_range(none, range));
  EXPECT_EQ(range.first, range.end);
}

TEST(MemoryOverlap, OfNeighboursIsNone) {
  const ConstTensorView first = array_at(4096, DType::kF32, {4}, {1});
  EXPECT_FALSE(share_memory(first, array_at(4096 + 16, DType::kF32, {4}, {1})));
  EXPECT_FALSE(share_memory(first, array_at(4096 - 16, DType::kF32, {4}, {1})));
  EXPECT_TRUE(share_memory(first, array_at(4096 + 15, DType::kF16, {1}, {1})));
  EXPECT_TRUE(share_memory(first, array_at(4096 - 1, DType::kF16, {1}, {1})));
  EXPECT_FALSE(share_memory(first, array_at(4096 - 2, DType::kF16, {1}, {1})));
}

TEST(MemoryOverlap, IsSupposedWhereAnArrayIsTooLongToReckonWith) {
  // Distances of two arrays stay in 63 bits when each spans at most 2^61 bytes.
  const std::uintptr_t base = std::uintptr_t{1} << 40;
  const std::int64_t far = std::int64_t{1} << 60;  // times 4 bytes
  const ConstTensorView wide = array_at(base, DType::kF32, {2, 4}, {far, 2});
  const ConstTensorView between = array_at(base + 4, DType::kF32, {3}, {2});
  ASSERT_FALSE(share_memory(array_at(base, DType::kF32, {2, 4}, {far / 4, 2}), between));
  EXPECT_TRUE(share_memory(wide, between));
  EXPECT_TRUE(share_memory(between, wide));
  EXPECT_TRUE(share_memory(wide, wide));
  EXPECT_FALSE(share_memory(wide, array_at(base - 4, DType::kF32, {1}, {1})));
  const ConstTensorView longest = array_at(base, DType::kF32, {2}, {far / 2 - 1});
  EXPECT_FALSE(share_memory(longest, between)) << "2^61 bytes";
  EXPECT_FALSE(share_memory(between, longest));
  const ConstTensorView beyond = array_at(base, DType::kF32, {3}, {kHuge / 4});
  EXPECT_TRUE(share_memory(beyond, between));
  EXPECT_TRUE(share_memory(between, beyond));
}

TEST(MemoryOverlap, ARangeEndsWithinTheAddressesThatThereAre) {
  const std::uintptr_t base = std::uintptr_t{1} << 40;
  AddressRange range;
  EXPECT_FALSE(address_range(array_at(base, DType::kF32, {3}, {kHuge / 8}), range));
  EXPECT_FALSE(address_range(array_at(base, DType::kF32, {2}, {kHuge}), range));
  EXPECT_FALSE(address_range(array_at(base, DType::kF32, {kHuge}, {2}), range));
  EXPECT_FALSE(address_range(
      array_at(base, DType::kF32, {2, 2, 2}, {kHuge / 8, kHuge / 8, kHuge / 8}), range));
  EXPECT_FALSE(address_range(
      array_at(base, DType::kF32, {2, 2, 2}, {-kHuge / 8, -kHuge / 8, -kHuge / 8}), range));
  EXPECT_FALSE(address_range(array_at(kHuge - 7, DType::kF32, {3}, {1}), range));
  EXPECT_TRUE(address_range(array_at(kHuge - 11, DType::kF32, {3}, {1}), range) ||
              address_range(array_at(kHuge - 12, DType::kF32, {3}, {1}), range));
}

TEST(MemoryOverlap, IsSupposedWhereItWouldTakeLongToRuleOut) {
  // Five unrelated strides on each side: a search of all their multiples would not end.
  const Extents shape = {40, 40, 40, 40, 40};
  const ConstTensorView a =
      array_at(1 << 20, DType::kI64, shape, {10007, 20011, 30011, 40009, 50021});
  const ConstTensorView b =
      array_at((1 << 20) + 4, DType::kI64, shape, {10009, 20021, 30013, 40013, 50023});
  EXPECT_TRUE(share_memory(a, b));
}

}  // namespace
}  // namespace attune
