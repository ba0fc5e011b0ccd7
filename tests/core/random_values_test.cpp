// Random tensors of cases: the same from the same seed, also where they are copies of each other.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case_tensors.hpp>

namespace attune::test {
namespace {

struct Drawn {
  DType dtype;
  Extents shape;
  bool even = false;
  double size = 1;
};

Tensor draw(RandomValues& random, const Drawn& what) {
  return what.even ? random.uniform(what.dtype, what.shape, -what.size, what.size)
                   : random.normal(what.dtype, what.shape, what.size);
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.view().data, b.view().data, a.bytes()) == 0);
}

std::vector<Tensor> draw_all(std::uint64_t seed) {
  // Of several blocks, of one, of none; every type; streams that differ in one thing alone.
  static const std::vector<Drawn> kDrawn = {
      {DType::kF32, {3, 50000}}, {DType::kF16, {3, 50000}},     {DType::kBF16, {3, 50000}},
      {DType::kF32, {7}},        {DType::kF32, {7}, true},      {DType::kF32, {7}, false, 2},
      {DType::kF32, {0, 4}},     {DType::kBF16, {7}, true, 0.5}};
  RandomValues random(seed);
  std::vector<Tensor> tensors;
  for (const Drawn& what : kDrawn) tensors.push_back(draw(random, what));
  return tensors;
}

TEST(RandomValues, AreTheSameWhereTheyAreCopies) {
  const std::vector<Tensor> expected = draw_all(1);
  const RepeatedValues repeated;
  for (int round = 0; round < 3; ++round) {
    const std::vector<Tensor> drawn = draw_all(1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(equal(drawn[i], expected[i])) << "tensor " << i << " of round " << round;
    }
  }
}

TEST(RandomValues, OfAnotherSeedStreamOrRangeAreOthersAlsoWhereTheyRepeat) {
  const RepeatedValues repeated;
  RandomValues one(1);
  const Tensor first = one.normal(DType::kF32, {100});
  const Tensor second = one.normal(DType::kF32, {100});
  EXPECT_FALSE(equal(first, second)) << "another stream";
  RandomValues two(2);
  EXPECT_FALSE(equal(first, two.normal(DType::kF32, {100}))) << "another seed";
  RandomValues even(1);
  EXPECT_FALSE(equal(first, even.uniform(DType::kF32, {100}, 0, 1))) << "another distribution";
  RandomValues wide(1);
  EXPECT_FALSE(equal(first, wide.normal(DType::kF32, {100}, 2))) << "another deviation";
}

/// The distance at which values repeat, or 0 where the first do not come again.
std::size_t period_of(std::span<const float> values) {
  constexpr std::size_t kRun = 16;
  for (std::size_t i = 1; i + kRun <= values.size(); ++i) {
    if (std::equal(values.begin(), values.begin() + kRun, values.begin() + static_cast<long>(i))) {
      return i;
    }
  }
  return 0;
}

TEST(RandomValues, OfALargeTensorRepeatItsFirstMillion) {
  RandomValues small_one(1);
  RandomValues large_one(1);
  Tensor few = small_one.normal(DType::kF32, {1000});
  Tensor many = large_one.normal(DType::kF32, {3, 1'100'000});
  const std::span<float> values = many.values<float>();
  EXPECT_TRUE(std::ranges::equal(values.first(1000), few.values<float>()));
  const std::size_t period = period_of(values);
  ASSERT_GT(period, 1'000'000U);
  EXPECT_TRUE(std::equal(values.begin() + static_cast<long>(period), values.end(), values.begin()));
  for (const std::size_t row : {64U, 100U, 128U}) EXPECT_NE(period % row, 0U) << "rows of " << row;
}

TEST(RandomValues, ThatRepeatShareNoMemory) {
  const RepeatedValues repeated;
  RandomValues one(1);
  Tensor changed = one.normal(DType::kF32, {100});
  std::memset(changed.view().data, 0, changed.bytes());
  RandomValues again(1);
  const Tensor later = again.normal(DType::kF32, {100});
  EXPECT_FALSE(equal(changed, later));
}

TEST(RandomValues, ScopesMayBeNested) {
  std::optional<RepeatedValues> outer(std::in_place);
  const std::vector<Tensor> before = draw_all(1);
  {
    const RepeatedValues inner;
    EXPECT_TRUE(equal(draw_all(1).front(), before.front()));
  }
  EXPECT_TRUE(equal(draw_all(1).front(), before.front()));
  outer.reset();
  EXPECT_TRUE(equal(draw_all(1).front(), before.front()));
}

}  // namespace
}  // namespace attune::test
