// Options that every op's call takes, whatever the op.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <attune/core/context.hpp>
#include <attune/core/short_name.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

/// The context that calls use when they name none: all built-in kernels, the user's and the shipped
/// databases, and the settings of the environment (ATTUNE_POLICY, ATTUNE_DB, ...). Made on first
/// use, kept as long as the process.
Context& default_context();

}  // namespace attune

namespace attune::ops {

/// Everything has a default: the best kernel and config known for the problem on the device that q
/// is on.
struct CallOptions {
  /// "auto": every platform's kernels compete. Otherwise only this one's ("simd", "reference",
  /// "cuda", ...).
  ShortName platform = kAutoPlatform;
  /// "auto": the device q is on. Otherwise q must be on a device of this backend ("cpu", "gpu").
  ShortName backend = kAutoPlatform;
  /// An override: "tile_v=64,threads=2", with "kernel=NAME," in front when more than one kernel
  /// could be meant. It is used for this call and never stored; one that does not fit is an error.
  std::string_view config = {};
  /// Lets f32 inputs be multiplied as TF32 (10-bit fractions) where the hardware does that faster.
  bool allow_tf32 = false;
  /// Where choices are made; default_context() when null.
  Context* context = nullptr;
  /// The stream of q's device that the work is queued on. A CPU has none.
  void* stream = nullptr;
};

}  // namespace attune::ops
