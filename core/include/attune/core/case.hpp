// A case: one problem with its own tensors, inputs filled, outputs poisoned. What a tuner checks
// and measures on, and what the command line runs; never the caller's tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/problem.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

struct NamedTensor {
  std::string name;
  ConstTensorView view;  // on the case's device
};

/// How far one output is from what was expected.
struct OutputCheck {
  std::string name = {};
  double error = 0;      // relative RMS, ||x - e|| / ||e||; the RMS of x where e is 0
  double tolerance = 0;  // what `error` was held against
  bool passed = false;
  /// "", or why it failed: "NaN at [0, 3, 1, 7]", "shape [..], expected [..]".
  std::string reason = {};
};

/// Attributes of a tensor file: "scale", "reverse", ...
using Attributes = std::map<std::string, std::string, std::less<>>;

class Case {
 public:
  virtual ~Case() = default;

  virtual ProblemRef problem() const = 0;

  /// The op's Args over this case's tensors, valid as long as the case.
  virtual const void* args() const = 0;

  /// Restores inputs that a run may have changed and fills every output with `poison`, byte by
  /// byte. Two runs with different poison that differ show a kernel that does not write, or reads,
  /// an output.
  virtual void reset(std::byte poison) = 0;

  virtual std::vector<NamedTensor> outputs() const = 0;

  /// Checks this case's outputs against `expected` (host tensors by output name), within the op's
  /// tolerances. An output that `expected` does not name is only checked to be finite. The device's
  /// work must have ended.
  virtual std::vector<OutputCheck> compare(const TensorMap& expected) const = 0;
};

/// Host copies of all outputs.
TensorMap copy_outputs(const Case& from, const Device& device);

/// ||x - expected|| / ||expected|| over all elements, in double; the RMS of x where expected is all
/// zero. A NaN or an infinity in x that is not in `expected` gives infinity.
double relative_rms_error(const std::vector<double>& x, const std::vector<double>& expected);

}  // namespace attune
