// Index tensors in host memory: what their values must be.
#include "operands/host_indices.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace attune::ops {
namespace {

using Indices = std::vector<std::int64_t>;

ConstTensorView view_of(const Indices& values) {
  return ConstTensorView(values.data(), {static_cast<std::int64_t>(values.size())});
}

template <class Check>
std::string refusal(const Check& check) {
  try {
    check(CallCheck("op", CheckLevel::kMemory));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string slots_refusal(const Indices& slots, std::int64_t pool) {
  return refusal(
      [&](const CallCheck& check) { check_slot_indices(check, "slots", view_of(slots), pool); });
}

TEST(SlotIndices, OfALargePoolMayStandOnceEachWhereverTheyAre) {
  // Large pools are looked at a window of 131,072 slots at a time: its ends, and what differs by
  // one, are slots like others.
  constexpr std::int64_t kWindow = 131'072;
  Indices slots;
  for (const std::int64_t window : {0, 1, 2}) {
    for (const std::int64_t slot :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, kWindow - 1}) {
      slots.push_back(window * kWindow + slot);
    }
  }
  const std::int64_t pool = slots.back() + 1;
  EXPECT_EQ(slots_refusal(slots, pool), "");
  for (const std::int64_t slot : slots) {
    Indices twice = slots;
    twice.push_back(slot);
    EXPECT_EQ(slots_refusal(twice, pool),
              str("op: slots: slot ", slot, " stands twice, the second time in row 15"));
  }
  EXPECT_EQ(slots_refusal(slots, pool - 1),
            str("op: slots: row 14 has slot ", pool - 1, ", expected less than ", pool - 1));
}

TEST(SlotIndices, PaddingIsNoSlot) {
  EXPECT_EQ(slots_refusal({-1, 0, -1, 1, -131'072, -131'072, -64}, 200'000), "");
  EXPECT_EQ(slots_refusal({-1, -1}, 0), "");
  EXPECT_EQ(slots_refusal({-1, 0}, 0), "op: slots: row 1 has slot 0, expected less than 0");
}

TEST(SlotIndices, ThatAreTooLargeAreRefusedWhereverTheyStand) {
  EXPECT_EQ(slots_refusal({0, 131'072}, 131'072),
            "op: slots: row 1 has slot 131072, expected less than 131072");
  EXPECT_EQ(slots_refusal({0, 131'072}, 131'073), "");
}

TEST(CuSeqlens, StartAt0DoNotFallAndEndAtTheTokens) {
  const auto refusal_of = [](const Indices& values) {
    return refusal([&](const CallCheck& check) {
      check_cu_seqlens(check, "cu_seqlens", view_of(values), {.tokens = 7});
    });
  };
  EXPECT_EQ(refusal_of({0, 7}), "");
  EXPECT_EQ(refusal_of({0, 0, 3, 3, 7, 7}), "") << "sequences may be empty";
  EXPECT_EQ(refusal_of({1, 7}), "op: cu_seqlens: values must start at 0, got 1");
  EXPECT_EQ(refusal_of({0, 4, 3, 7}), "op: cu_seqlens: values must not fall, got 3 after 4");
  EXPECT_EQ(refusal_of({0, 8, 7}), "op: cu_seqlens: values must not fall, got 7 after 8");
  EXPECT_EQ(refusal_of({0, 3}),
            "op: cu_seqlens: values must end at the number of tokens, 7, got 3");
}

TEST(CuSeqlens, MayEndBeforeTheTokensOfAPaddedBatch) {
  const auto refusal_of = [](const Indices& values) {
    return refusal([&](const CallCheck& check) {
      check_cu_seqlens(check, "cu_seqlens", view_of(values), {.tokens = 7, .may_be_padded = true});
    });
  };
  EXPECT_EQ(refusal_of({0, 3}), "");
  EXPECT_EQ(refusal_of({0, 0}), "");
  EXPECT_EQ(refusal_of({0, 8}),
            "op: cu_seqlens: values must not exceed the number of tokens, 7, got 8");
}

TEST(SameIndices, DifferInNoValue) {
  const auto refusal_of = [](const Indices& values, const Indices& others) {
    return refusal([&](const CallCheck& check) {
      check_same_indices(check, "host", view_of(values), "device", view_of(others));
    });
  };
  EXPECT_EQ(refusal_of({0, 3, 7}, {0, 3, 7}), "");
  EXPECT_EQ(refusal_of({0, 3, 7}, {0, 3, 8}), "op: host: value 2 is 7, expected 8 as in device");
}

TEST(Indices, AreReadByTheirTypeAndStride) {
  const std::vector<std::int32_t> narrow = {1, -2, 3, -4};
  ConstTensorView view(narrow.data(), {2});
  view.strides = {2};
  EXPECT_EQ(index_at(view, 1), 3);
  const Indices wide = {std::int64_t{1} << 40, -2, std::int64_t{1} << 41};
  view = view_of(wide);
  EXPECT_EQ(index_at(view, 2), std::int64_t{1} << 41);
}

}  // namespace
}  // namespace attune::ops
