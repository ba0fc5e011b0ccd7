// Whether outputs are what was expected, within DESIGN's tolerances.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/tensor.hpp>

namespace attune::ops {

/// Relative RMS errors that pass.
struct Tolerances {
  double tensor = 0;
  double gate_gradient = 0;  // gradients of gates are sums that cancel
};

/// f32 products that may be rounded to TF32 have f16's precision, and count as 16-bit.
Tolerances tolerances_of(DType dtype, bool tf32);

/// ||e|| = 0: the RMS that passes.
inline constexpr double kAbsoluteTolerance = 1e-6;

/// The RMS of the terms that make up a gate's gradient: an error of that times the tensor tolerance
/// passes, too. Asked for only where it decides; empty for outputs that are no gate's gradient.
using SummandRms = std::function<double()>;

/// Holds `actual` (host, dense) against `expected`, or, where that is null, only looks for values
/// that are not finite.
OutputCheck check_output(const std::string& name, const Tensor& actual, const Tensor* expected,
                         const Tolerances& tolerances, const SummandRms& summand_rms);

/// Of the values that are finite.
double rms(const std::vector<double>& values);

}  // namespace attune::ops
