// The checks that every call shares: what they say, and of which tensors.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <attune/core/call_check.hpp>

namespace attune {
namespace {

ConstTensorView at(std::uintptr_t address, const Extents& shape, DType dtype = DType::kF32) {
  return {reinterpret_cast<const void*>(address), dtype, shape};
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

class CallCheckTest : public testing::Test {
 protected:
  std::string shape_refusal(const Extents& shape) {
    return refusal([&] { check.shape("q", at(64, shape), {2, "T", 4, "K"}); });
  }
  CallCheck check{"op", CheckLevel::kMemory};
};

TEST_F(CallCheckTest, AShapeIsOfItsRankAndExtents) {
  EXPECT_EQ(shape_refusal({2, 9, 4, 8}), "");
  EXPECT_EQ(shape_refusal({2, 0, 4, 0}), "");
  for (const Extents& shape : {Extents{2, 9, 4}, Extents{2, 9, 4, 8, 1}, Extents{1, 9, 4, 8},
                               Extents{2, 9, 3, 8}, Extents{2, -1, 4, 8}, Extents{}}) {
    EXPECT_EQ(shape_refusal(shape), str("op: q: shape ", shape, ", expected [2, T, 4, K]"));
  }
}

TEST_F(CallCheckTest, RowsAreDenseUnlessTheyHaveOneElementOrNone) {
  const auto refused = [&](const Extents& shape, const Extents& strides) {
    const ConstTensorView view(reinterpret_cast<const void*>(64), DType::kF32, shape, strides);
    return !refusal([&] { check.dense_rows("q", view); }).empty();
  };
  EXPECT_FALSE(refused({3, 4}, {9, 1}));
  EXPECT_TRUE(refused({3, 4}, {9, 2}));
  EXPECT_TRUE(refused({3, 4}, {9, 0}));
  EXPECT_FALSE(refused({3, 1}, {9, 2}));
  EXPECT_FALSE(refused({0, 4}, {9, 2}));
}

TEST_F(CallCheckTest, AnAddressIsAMultipleOfTheElementsAndNotNullUnlessNothingIsThere) {
  const auto input = [](std::uintptr_t address, const Extents& shape,
                        CheckLevel level = CheckLevel::kMemory) {
    return refusal([&] { CallCheck("op", level).input("q", at(address, shape)); });
  };
  EXPECT_EQ(input(4, {3}), "");
  EXPECT_NE(input(6, {3}).find("expected a multiple of 4 bytes"), std::string::npos);
  EXPECT_EQ(input(0, {3}), "op: q: null pointer to a tensor of shape [3]");
  EXPECT_EQ(input(0, {3, 0}), "");
  EXPECT_EQ(input(0, {3}, CheckLevel::kMetadata), "");
}

TEST_F(CallCheckTest, AnArrayIsNoLargerThanMemoryCanBe) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto input = [&](const Extents& shape, const Extents& strides) {
    const ConstTensorView view(reinterpret_cast<const void*>(64), DType::kF32, shape, strides);
    CallCheck call("op", CheckLevel::kMemory);  // it looks at what it was given before
    return refusal([&] { call.input("q", view); });
  };
  EXPECT_EQ(input({kMost, 3}, {0, 0}),
            str("op: q: shape [", kMost, ", 3], expected at most 2^63 - 1 elements"));
  EXPECT_EQ(input({kMost, 3, 0}, {0, 0, 0}), "") << "none at all";
  EXPECT_NE(input({3, 2}, {kMost, 1}).find("spans more than 2^63 - 1 bytes"), std::string::npos);
}

TEST_F(CallCheckTest, AnOutputIsApartFromAllTensorsBeforeItButTheOneItReplaces) {
  const auto output = [](const ConstTensorView& view, std::string_view in_place_of,
                         CheckLevel level = CheckLevel::kMemory) {
    CallCheck call("op", level);
    const ConstTensorView q = at(4096, {4});
    const ConstTensorView k = at(8192, {4});
    call.input("q", q);
    call.input("k", k);
    return refusal([&] { call.output_or_in_place("o", view, in_place_of); });
  };
  EXPECT_EQ(output(at(4096 + 16, {4}), ""), "");
  EXPECT_EQ(output(at(4096 - 16, {4}), ""), "");
  EXPECT_EQ(output(at(4096 + 12, {4}), ""), "op: o: overlaps q, expected memory of its own");
  EXPECT_EQ(output(at(8192, {4}), ""), "op: o: overlaps k, expected memory of its own");
  EXPECT_EQ(output(at(8192, {4}), "", CheckLevel::kMetadata), "") << "there may be no data yet";
  EXPECT_EQ(output(at(8192, {4}), "k"), "");
  EXPECT_EQ(output(at(8192, {4}), "q"), "op: o: overlaps k, expected memory of its own");
  EXPECT_EQ(output(at(8192 + 4, {4}), "k"),
            "op: o: overlaps k, expected exactly the same array or none of it");
  EXPECT_EQ(output(at(8192, {2}), "k"),
            "op: o: overlaps k, expected exactly the same array or none of it");
  EXPECT_EQ(output(at(8192, {4}, DType::kI32), "k"),
            "op: o: overlaps k, expected exactly the same array or none of it");
}

TEST_F(CallCheckTest, ASummedOutputMayHaveOneRowForAll) {
  const auto summed = [](const Extents& strides) {
    CallCheck call("op", CheckLevel::kMemory);
    const ConstTensorView view(reinterpret_cast<const void*>(4096), DType::kF32, {3, 4}, strides);
    return refusal([&] { call.summed_output("dg", view); });
  };
  EXPECT_EQ(summed({0, 1}), "");
  EXPECT_EQ(summed({4, 1}), "");
  EXPECT_NE(summed({1, 1}).find("has elements that share memory"), std::string::npos);
}

}  // namespace
}  // namespace attune
