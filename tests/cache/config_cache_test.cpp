#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <attune/cache/config_cache.hpp>

#include "support/allocation_count.hpp"

namespace attune {
namespace {

SelectionKey key_of(std::int64_t i) {
  SelectionKey key{};
  key.op = op_id("row_softmax");
  key.platform = "auto";
  key.problem.count = 15;
  key.problem.values[0] = i;
  key.problem.values[14] = -i;
  return key;
}

/// A choice that says what it was stored for, all over its blob.
Choice choice_of(std::int64_t i, std::int64_t generation = 0) {
  Choice choice;
  for (std::size_t at = 0; at < choice.config.bytes.size(); at += 16) {
    std::memcpy(choice.config.bytes.data() + at, &i, sizeof i);
    std::memcpy(choice.config.bytes.data() + at + 8, &generation, sizeof generation);
  }
  return choice;
}

/// Whether a choice is a whole one that was stored for key_of(i).
bool is_choice_of(const Choice& choice, std::int64_t i) {
  std::int64_t generation = 0;
  std::memcpy(&generation, choice.config.bytes.data() + 8, sizeof generation);
  return choice.config.bytes == choice_of(i, generation).config.bytes;
}

TEST(ConfigCache, FindsWhatWasPut) {
  ConfigCache cache;
  for (std::int64_t i = 0; i < 5000; ++i) ASSERT_TRUE(cache.put(key_of(i), choice_of(i)));
  EXPECT_EQ(cache.size(), 5000U);
  for (std::int64_t i = 0; i < 5000; ++i) {
    const Choice* choice = cache.find(key_of(i));
    ASSERT_NE(choice, nullptr) << i;
    EXPECT_TRUE(is_choice_of(*choice, i)) << i;
  }
  EXPECT_EQ(cache.find(key_of(5000)), nullptr);
}

TEST(ConfigCache, WhatIsPutAgainAfterItWasEmptiedTakesNoMoreMemory) {
  ConfigCache cache;
  cache.put(key_of(1), choice_of(1));
  cache.put(key_of(2), choice_of(2));
  const Choice* const before = cache.find(key_of(1));
  cache.clear();
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  cache.put(key_of(1), choice_of(1));
  cache.put(key_of(2), choice_of(2, 7));
  EXPECT_EQ(cache.find(key_of(1)), before);
  EXPECT_EQ(cache.find(key_of(2))->config.bytes, choice_of(2, 7).config.bytes);
}

TEST(ConfigCache, TellsKeysApartByEachOfTheirParts) {
  const auto* device = reinterpret_cast<const Device*>(0x1000);  // never followed
  std::vector<SelectionKey> keys(10, key_of(1));
  keys[1].op = op_id("another_op");
  keys[2].device = device;
  keys[3].platform = "simd";
  keys[4].problem.values[14] = 99;
  keys[5].problem.count = 14;
  keys[6].problem.count = 16;  // one more word, which is zero
  keys[7].most_workspace = 1;
  keys[8].most_error = 0;
  keys[9].workspace_limit = 1;
  ConfigCache cache;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(cache.put(keys[i], choice_of(static_cast<std::int64_t>(i))));
  }
  EXPECT_EQ(cache.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_TRUE(is_choice_of(*cache.find(keys[i]), static_cast<std::int64_t>(i))) << i;
  }
}

/// Keys that differ in one word and have one hash. XXH3 multiplies the words of a pair, each mixed
/// with a constant of its own: where the first word is its constant, the product is 0.
SelectionKey colliding_key(std::int64_t i) {
  SelectionKey key = key_of(0);
  constexpr std::uint64_t kConstant = 0xcb00c391bb52283c;  // bytes 64 to 71 of XXH3's secret
  key.problem.values[1] = static_cast<std::int64_t>(kConstant);
  key.problem.values[2] = i;
  return key;
}

TEST(ConfigCache, TellsKeysOfOneHashApart) {
  const auto hash_of = [](const SelectionKey& key) {
    return XXH3_64bits(&key, offsetof(SelectionKey, problem) + offsetof(FieldValues, values) +
                                 key.problem.count * sizeof(std::int64_t));
  };
  ASSERT_EQ(hash_of(colliding_key(1)), hash_of(colliding_key(2)));
  ASSERT_NE(hash_of(key_of(1)), hash_of(key_of(2)));
  ConfigCache cache;
  ASSERT_TRUE(cache.put(colliding_key(1), choice_of(1)));
  EXPECT_EQ(cache.find(colliding_key(2)), nullptr);
  EXPECT_FALSE(cache.erase(colliding_key(2)));
  for (std::int64_t i = 2; i < 100; ++i) ASSERT_TRUE(cache.put(colliding_key(i), choice_of(i)));
  EXPECT_EQ(cache.size(), 99U);
  for (std::int64_t i = 1; i < 100; ++i) {
    const Choice* choice = cache.find(colliding_key(i));
    ASSERT_NE(choice, nullptr);
    EXPECT_TRUE(is_choice_of(*choice, i)) << i;
  }
  EXPECT_TRUE(cache.erase(colliding_key(50)));
  EXPECT_EQ(cache.find(colliding_key(50)), nullptr);
  EXPECT_NE(cache.find(colliding_key(51)), nullptr);
}

TEST(ConfigCache, IgnoresWordsBeyondTheCount) {
  ConfigCache cache;
  cache.put(key_of(1), choice_of(1));
  SelectionKey key = key_of(1);
  key.problem.values[20] = 12345;
  EXPECT_NE(cache.find(key), nullptr);
}

TEST(ConfigCache, ReplacesAndKeepsTheOldChoiceReadable) {
  ConfigCache cache;
  cache.put(key_of(1), choice_of(1, 1));
  const Choice* old = cache.find(key_of(1));
  cache.put(key_of(1), choice_of(1, 2));
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(old->config.bytes, choice_of(1, 1).config.bytes);
  EXPECT_EQ(cache.find(key_of(1))->config.bytes, choice_of(1, 2).config.bytes);
}

TEST(ConfigCache, ErasesAndTakesTheKeyAgain) {
  ConfigCache cache;
  cache.put(key_of(1), choice_of(1));
  cache.put(key_of(2), choice_of(2));
  EXPECT_TRUE(cache.erase(key_of(1)));
  EXPECT_FALSE(cache.erase(key_of(1)));
  EXPECT_FALSE(cache.erase(key_of(3)));
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.keys(), std::vector<SelectionKey>{key_of(2)});
  EXPECT_TRUE(cache.put(key_of(1), choice_of(1)));
  EXPECT_NE(cache.find(key_of(1)), nullptr);
}

TEST(ConfigCache, StaysRightWhileKeysComeAndGo) {
  ConfigCache cache;
  for (std::int64_t i = 0; i < 20000; ++i) {
    cache.put(key_of(i), choice_of(i));
    if (i < 10) continue;
    ASSERT_TRUE(cache.erase(key_of(i - 10)));
  }
  EXPECT_EQ(cache.size(), 10U);
  EXPECT_EQ(cache.keys().size(), 10U);
  for (std::int64_t i = 19990; i < 20000; ++i) EXPECT_NE(cache.find(key_of(i)), nullptr) << i;
}

TEST(ConfigCache, ForgetsEverythingOnClear) {
  ConfigCache cache;
  for (std::int64_t i = 0; i < 1000; ++i) cache.put(key_of(i), choice_of(i));
  const Choice* old = cache.find(key_of(7));
  cache.clear();
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_TRUE(cache.keys().empty());
  EXPECT_EQ(cache.find(key_of(7)), nullptr);
  EXPECT_TRUE(is_choice_of(*old, 7));
  EXPECT_TRUE(cache.put(key_of(7), choice_of(7)));
}

TEST(ConfigCache, RefusesNewKeysWhenFullButReplacesKnownOnes) {
  ConfigCache cache(3);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_TRUE(cache.put(key_of(i), choice_of(i)));
  EXPECT_FALSE(cache.put(key_of(3), choice_of(3)));
  EXPECT_EQ(cache.find(key_of(3)), nullptr);
  EXPECT_TRUE(cache.put(key_of(2), choice_of(2, 9)));
  EXPECT_TRUE(cache.erase(key_of(0)));
  EXPECT_TRUE(cache.put(key_of(3), choice_of(3)));
  EXPECT_EQ(cache.size(), 3U);
}

TEST(ConfigCache, AllocatesNothingToFind) {
  ConfigCache cache;
  for (std::int64_t i = 0; i < 1000; ++i) cache.put(key_of(i), choice_of(i));
  const std::size_t before = test::allocation_count();
  std::size_t found = 0;
  for (std::int64_t i = 0; i < 2000; ++i) found += cache.find(key_of(i)) != nullptr ? 1 : 0;
  EXPECT_EQ(test::allocation_count(), before);
  EXPECT_EQ(found, 1000U);
  cache.put(key_of(5000), choice_of(5000));
  EXPECT_GT(test::allocation_count(), before) << "the counter does not count";
}

TEST(ConfigCache, ServesOnlyWholeChoicesWhileWritersGrowReplaceAndErase) {
  constexpr std::int64_t kKeys = 3000;
  ConfigCache cache;
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 3; ++reader) {
    threads.emplace_back([&, reader] {
      std::int64_t i = reader;
      while (!stop.load()) {
        i = (i * 5 + 13) % kKeys;
        const Choice* choice = cache.find(key_of(i));
        if (choice != nullptr && !is_choice_of(*choice, i)) ++wrong;
      }
    });
  }
  for (std::int64_t writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::int64_t generation = 0; generation < 3; ++generation) {
        for (std::int64_t i = writer; i < kKeys; i += 2)
          cache.put(key_of(i), choice_of(i, generation));
        for (std::int64_t i = writer; i < kKeys; i += 6) cache.erase(key_of(i));
      }
    });
  }
  threads[3].join();
  threads[4].join();
  cache.clear();
  cache.put(key_of(1), choice_of(1, 77));
  stop = true;
  for (int reader = 0; reader < 3; ++reader) threads[static_cast<std::size_t>(reader)].join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(cache.size(), 1U);
}

}  // namespace
}  // namespace attune
