// The scratch memory of a one-shot call, where its caller brings some.
#pragma once

#include <cstdint>
#include <new>

#include <attune/core/workspace.hpp>

#include "structs.hpp"

namespace attune::c {

/// A caller's `allocate` and `release`. Borrows the call.
class CallersAllocator final : public WorkspaceAllocator {
 public:
  explicit CallersAllocator(const attune_call& call) : call_(call) {}

  void* allocate(std::size_t bytes, const DeviceId& device, void* stream) override {
    void* const memory = call_.allocate(call_.user, bytes, device_of(device), stream);
    if (memory == nullptr) throw std::bad_alloc();
    if (reinterpret_cast<std::uintptr_t>(memory) % ATTUNE_WORKSPACE_ALIGNMENT != 0) {
      deallocate(memory, bytes, stream);
      throw InvalidArgument(
          str("call: allocate: expected memory at a multiple of ", ATTUNE_WORKSPACE_ALIGNMENT));
    }
    return memory;
  }
  void deallocate(void* memory, std::size_t, void*) noexcept override {
    if (call_.release != nullptr) call_.release(call_.user, memory);
  }

 private:
  const attune_call& call_;
};

/// The options of a call that runs at once: those of a plan, and where its scratch memory is from.
/// Borrows `call` and `allocator`.
inline ops::CallOptions options_with_memory(const attune_call& call, CallersAllocator& allocator) {
  ops::CallOptions options = options_of(call);
  if (call.workspace != nullptr) {
    options.workspace.emplace(static_cast<std::byte*>(call.workspace), call.workspace_bytes);
  }
  if (call.allocate != nullptr) options.workspace_allocator = &allocator;
  return options;
}

}  // namespace attune::c
