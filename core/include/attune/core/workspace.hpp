// Scratch memory of a launch: what a caller may bring, and how much a choice may need.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <attune/core/device.hpp>

namespace attune {

/// Bytes that the address of a workspace is a multiple of.
inline constexpr std::size_t kWorkspaceAlignment = 64;

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// Scratch memory by a caller's own allocator, as an engine's caching one. Used from any thread
/// that makes calls with it.
class WorkspaceAllocator {
 public:
  virtual ~WorkspaceAllocator() = default;

  /// At least `bytes` >= 1 of memory on the device, aligned to kWorkspaceAlignment, that work
  /// queued on `stream` from now on may use. What it throws leaves by the call.
  virtual void* allocate(std::size_t bytes, const DeviceId& device, void* stream) = 0;
  /// Once the work is queued: the memory is in use until what `stream` has by now has run.
  virtual void deallocate(void* memory, std::size_t bytes, void* stream) noexcept = 0;
};

/// Where the scratch memory of a call comes from: the memory given, the allocator, or else the
/// device. At most one of the two is given.
struct CallMemory {
  std::optional<std::span<std::byte>> workspace = {};
  WorkspaceAllocator* allocator = nullptr;

  /// The most that a choice may need here, which is at most `limit`.
  std::size_t limit(std::size_t limit) const {
    return workspace && workspace->size() < limit ? workspace->size() : limit;
  }
};

/// Throws InvalidArgument, naming `op` and the workspace, unless it has `bytes` that are aligned.
void check_workspace(std::string_view op, std::span<std::byte> workspace, std::size_t bytes);

}  // namespace attune
