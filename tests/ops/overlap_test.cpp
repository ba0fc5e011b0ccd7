// Overlap of strided tensors, as calls refuse it, against a list of every element's address.
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"

namespace attune::test {
namespace {

constexpr std::int64_t kBuffer = 400;  // elements

std::vector<std::int64_t> offsets_of(const TensorView& view) {
  std::vector<std::int64_t> offsets{0};
  for (int dim = 0; dim < view.rank(); ++dim) {
    std::vector<std::int64_t> more;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < view.size(dim); ++i)
        more.push_back(offset + i * view.stride(dim));
    }
    offsets = std::move(more);
  }
  return offsets;
}

std::set<const void*> addresses(const TensorView& view) {
  std::set<const void*> found;
  for (const std::int64_t offset : offsets_of(view)) {
    found.insert(static_cast<const float*>(view.data) + offset);
  }
  return found;
}

bool share_an_element(const TensorView& a, const TensorView& b) {
  const std::set<const void*> of_a = addresses(a);
  for (const void* address : addresses(b)) {
    if (of_a.contains(address)) return true;
  }
  return false;
}

bool has_an_element_twice(const TensorView& view) {
  return addresses(view).size() != offsets_of(view).size();
}

/// A view of random strides of [2, 2, 2, 3] within the buffer.
TensorView random_view(const TensorView& buffer, std::mt19937_64& random) {
  const auto below = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random);
  };
  TensorView view = buffer;
  view.shape = {2, 2, 2, 3};
  view.strides = {below(60), below(40), below(20), 1};
  std::int64_t first = below(kBuffer - 3 - 60 - 40 - 20);
  for (int dim = 0; dim < 3; ++dim) {
    if (below(4) != 0) continue;
    first += view.strides[dim];
    view.strides[dim] = -view.strides[dim];
  }
  view.data = static_cast<float*>(buffer.data) + first;
  return view;
}

bool accepted(const TensorView& o, const TensorView& q) {
  Memory memory;
  const TensorView other = memory.f32(q.shape);
  try {
    ops::recurrent_attention_args({.o = o}, q, other, other);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

TEST(Overlap, IsRefusedExactlyWhenAnElementIsShared) {
  Memory memory;
  const TensorView buffer = memory.f32({kBuffer});
  std::mt19937_64 random(1);
  int shared = 0;
  int apart = 0;
  for (int i = 0; i < 3000; ++i) {
    const TensorView q = random_view(buffer, random);
    TensorView o = random_view(buffer, random);
    o.strides = {90, 30, 5, 1};  // where no element stands twice
    o.data = static_cast<float*>(buffer.data) + i % 200;
    const bool share = share_an_element(o, q);
    EXPECT_EQ(accepted(o, q), !share) << "q " << q.strides << " o " << o.strides << " at " << i;
    ++(share ? shared : apart);
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(apart, 100);
}

TEST(Overlap, WithinAnOutputIsAlwaysRefused) {
  Memory memory;
  const TensorView buffer = memory.f32({kBuffer});
  const TensorView q = memory.f32({2, 2, 2, 3});
  std::mt19937_64 random(2);
  int overlapping = 0;
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const TensorView o = random_view(buffer, random);
    const bool twice = has_an_element_twice(o);
    const bool taken_now = accepted(o, q);
    EXPECT_FALSE(twice && taken_now) << o.strides;
    overlapping += twice ? 1 : 0;
    taken += taken_now ? 1 : 0;
  }
  EXPECT_GT(overlapping, 100);
  EXPECT_GT(taken, 1000);  // a few that do not overlap are refused, too
}

TEST(Overlap, OfArraysThatInterleaveAtManyLevelsIsDecided) {
  Memory memory;
  const std::int64_t rows = 64;
  const TensorView buffer = memory.f32({rows, rows, rows, 8});
  const TensorView even = buffer.slice(3, 0, 4);
  const TensorView odd = buffer.slice(3, 4, 8);
  EXPECT_TRUE(accepted(odd, even));
  EXPECT_FALSE(accepted(odd, buffer.slice(3, 1, 5)));
  EXPECT_TRUE(accepted(odd, even.permute({2, 1, 0, 3})));
}

}  // namespace
}  // namespace attune::test
