// Options that every op's call takes, whatever the op.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

  /// Scratch memory of this call, on q's device and 64-byte aligned (kWorkspaceAlignment): what is
  /// chosen needs no more, and the call allocates none. It is in use until the stream has run the
  /// work. A plan takes its own at launch, and has Plan::workspace_bytes().
  std::optional<std::span<std::byte>> workspace = {};
  /// Or an allocator of scratch memory in place of the device's; borrowed for the call.
  WorkspaceAllocator* workspace_allocator = nullptr;
  /// Bounds the scratch memory of what is chosen, and is no part of the key: what is stored and
  /// needs more is passed over, for what a heuristic finds that does not. Unsupported, with the
  /// least that would do, where nothing does.
  std::size_t workspace_limit = kNoLimit;
  /// What is tuned under, stored under, and found under again, where it is given.
  Constraints constraints = {};
};

}  // namespace attune::ops
