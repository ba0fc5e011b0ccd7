// What any device has to do with arrays where they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/in_place.hpp>

namespace attune::test {

/// Of a view of `memory`, put on the device first; the view has its offset, shape and strides.
template <class T>
Digest digest_on(const Device& device, const std::vector<T>& memory, std::int64_t offset,
                 const Extents& shape, const Extents& strides) {
  const Extents all{std::ssize(memory)};
  Tensor there(kDTypeOf<T>, all, device);
  device.copy_to_device(there.view().data, memory.data(), there.bytes(), nullptr);
  device.synchronize(nullptr);
  const ConstTensorView view(static_cast<const T*>(there.view().data) + offset, kDTypeOf<T>, shape,
                             strides, device.info().id);
  return digests_of({&view, 1}, device).front();
}

template <class T>
Digest digest_on(const Device& device, const std::vector<T>& values) {
  return digest_on(device, values, 0, {std::ssize(values)}, {1});
}

/// More than a block of a host's, and than a grid of a GPU's has threads.
inline constexpr std::int64_t kManyElements = 600'001;

template <class T>
std::vector<T> counted(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<T>(i % 251);
    } else {
      values[i] = T(static_cast<float>(i % 251));
    }
  }
  return values;
}

/// Any value that changes, and any two that change places, change the checksum.
template <class T>
void expect_each_element_counts(const Device& device) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, kManyElements}) {
    std::vector<T> values = counted<T>(count);
    const Digest before = digest_on(device, values);
    EXPECT_EQ(digest_on(device, values), before);
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      std::vector<T> others = values;
      others[static_cast<std::size_t>(at)] = T(252);
      EXPECT_NE(digest_on(device, others).sum, before.sum) << count << " at " << at;
      if (at == 0) continue;
      others = values;
      std::swap(others[static_cast<std::size_t>(at)], others[static_cast<std::size_t>(at - 1)]);
      EXPECT_NE(digest_on(device, others).sum, before.sum) << count << " at " << at;
    }
  }
}

/// An infinity or a NaN is found wherever it is first; the largest finite value is none.
template <class T>
void expect_first_not_finite(const Device& device, float largest) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float kinds[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  std::vector<T> values(static_cast<std::size_t>(kManyElements), T(-largest));
  values.back() = T(largest);
  EXPECT_EQ(digest_on(device, values).not_finite, -1);
  int kind = 0;
  for (const std::int64_t at : {kManyElements - 1, kManyElements / 2, std::int64_t{0}}) {
    values[static_cast<std::size_t>(at)] = T(kinds[kind++]);
    EXPECT_EQ(digest_on(device, values).not_finite, at);
  }
}

/// A view is read as the dense array that it stands for.
inline void expect_views_are_as_dense(const Device& device) {
  std::vector<float> memory = counted<float>(4 * 6 * 10);
  std::iota(memory.begin(), memory.end(), 1.0F);
  std::vector<float> dense;  // [3, 2, 4] with strides 2, 60 and -10 from element 200
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 4; ++k) {
        dense.push_back(memory[static_cast<std::size_t>(100 + 2 * i + 60 * j - 10 * k)]);
      }
    }
  }
  EXPECT_EQ(digest_on(device, memory, 100, {3, 2, 4}, {2, 60, -10}), digest_on(device, dense));
  memory[100 + 2 * 2 + 60 - 10] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(digest_on(device, memory, 100, {3, 2, 4}, {2, 60, -10}).not_finite, 2 * 8 + 4 + 1);
  memory[101] = std::numeric_limits<float>::infinity();  // which the view does not have
  EXPECT_EQ(digest_on(device, memory, 100, {3, 2, 4}, {2, 60, -10}).not_finite, 2 * 8 + 4 + 1);
}

inline void expect_many_at_once_are_as_each(const Device& device) {
  Tensor first(DType::kBF16, {100}, device);
  Tensor second(DType::kI64, {2, 30}, device);
  device.fill(first.view().data, std::byte{0xFF}, first.bytes(), nullptr);
  device.fill(second.view().data, std::byte{0xFF}, second.bytes(), nullptr);
  device.synchronize(nullptr);
  const ConstTensorView none(nullptr, DType::kF32, {2, 0}, device.info().id);
  const std::vector<ConstTensorView> views{first.view(), none, second.view()};
  const std::vector<Digest> all = digests_of(views, device);
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(digests_of({&views[i], 1}, device).front(), all[i]);
  }
  EXPECT_EQ(all[0].not_finite, 0);
  EXPECT_EQ(all[1], Digest());
  EXPECT_EQ(all[2].not_finite, -1) << "of integers";
  EXPECT_TRUE(digests_of({}, device).empty());
}

inline void expect_copies(const Device& device) {
  const std::vector<float> values = counted<float>(kManyElements);
  Tensor from(DType::kF32, {kManyElements}, device);
  Tensor to(DType::kF32, {kManyElements}, device);
  device.copy_to_device(from.view().data, values.data(), from.bytes(), nullptr);
  device.fill(to.view().data, std::byte{0}, to.bytes(), nullptr);
  copy_within(device, static_cast<float*>(to.view().data) + 1, from.view().data,
              from.bytes() - 2 * sizeof(float), nullptr);
  device.synchronize(nullptr);
  const Tensor copy = to_host(to.view(), device);
  EXPECT_EQ(copy.values<float>().front(), 0);
  EXPECT_EQ(copy.values<float>().back(), 0);
  EXPECT_TRUE(std::equal(values.begin(), values.end() - 2, copy.values<float>().begin() + 1));
}

inline void expect_digests(const Device& device) {
  expect_each_element_counts<float>(device);
  expect_each_element_counts<bf16>(device);
  expect_each_element_counts<f16>(device);
  expect_each_element_counts<std::int32_t>(device);
  expect_each_element_counts<std::int64_t>(device);
  expect_first_not_finite<float>(device, std::numeric_limits<float>::max());
  expect_first_not_finite<bf16>(device, 3.3895314e38F);
  expect_first_not_finite<f16>(device, 65504);
  expect_views_are_as_dense(device);
  expect_many_at_once_are_as_each(device);
}

}  // namespace attune::test
