// Tests of what recurrent attention promises, as callers meet it: through the ops' functions, once
// for each platform that a CPU has.
#pragma once

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "support/heuristic_context.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {

/// Relative RMS errors that recurrent_attention.hpp allows.
inline constexpr double kTolerance = 2e-5;
inline constexpr double kTolerance16 = 5e-3;

inline std::vector<double> values_of(const ConstTensorView& view) { return to_doubles(view); }

inline void expect_near(const ConstTensorView& actual, const ConstTensorView& expected,
                        double tolerance = kTolerance) {
  EXPECT_EQ(actual.shape, expected.shape);
  EXPECT_LE(relative_rms_error(values_of(actual), values_of(expected)), tolerance);
}

inline void expect_equal(const ConstTensorView& actual, const ConstTensorView& expected) {
  EXPECT_THAT(values_of(actual), testing::ElementsAreArray(values_of(expected)));
}

/// Tokens [begin, end) of a [B, T, ...] tensor.
inline ConstTensorView tokens(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  return tensor.view().slice(1, begin, end);
}

struct Inputs {
  Tensor q, k, v;
};

inline Inputs random_inputs(std::uint64_t seed, std::int64_t T, std::int64_t H, std::int64_t K,
                            std::int64_t V, DType dtype = DType::kF32) {
  RandomTensors random(seed);
  return {random({1, T, H, K}, dtype), random({1, T, H, K}, dtype), random({1, T, H, V}, dtype)};
}

class EachPlatform : public testing::TestWithParam<const char*> {
 protected:
  ops::CallOptions call() const {
    return {.platform = GetParam(), .context = &heuristic_context()};
  }
  ops::RecurrentAttentionOptions options() const {
    return {.want_final_state = true, .call = call()};
  }
};

inline auto cpu_platforms() { return testing::Values("reference", "simd", "auto"); }
inline std::string platform_name(const testing::TestParamInfo<const char*>& test) {
  return test.param;
}

}  // namespace attune::test
