// Host tensors of normally distributed values.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/tensor.hpp>

namespace attune::test {

class RandomTensors {
 public:
  explicit RandomTensors(std::uint64_t seed) : random_(seed) {}

  /// mean + deviation * N(0, 1), rounded to `dtype` (f32, f16 or bf16).
  Tensor operator()(const Extents& shape, DType dtype = DType::kF32, double mean = 0,
                    double deviation = 1) {
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
    for (float& value : values) value = normal(random_);
    if (dtype == DType::kF16) return rounded<f16>(values, shape);
    if (dtype == DType::kBF16) return rounded<bf16>(values, shape);
    return Tensor::of(values, shape);
  }

  /// Log decays: negative, most of them between -0.3 and 0.
  Tensor log_decays(const Extents& shape) {
    Tensor decays = (*this)(shape, DType::kF32, 0, 0.1);
    for (float& value : decays.values<float>()) value = -std::abs(value);
    return decays;
  }

 private:
  template <class T>
  static Tensor rounded(const std::vector<float>& values, const Extents& shape) {
    std::vector<T> narrow(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = T(values[i]);
    return Tensor::of(narrow, shape);
  }

  std::mt19937_64 random_;
};

inline Tensor copy_of(const ConstTensorView& view) { return to_host(view, cpu_device()); }

}  // namespace attune::test
