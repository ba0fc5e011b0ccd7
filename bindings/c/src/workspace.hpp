// The scratch memory of a one-shot call: the caller's where it was given, else the allocator's that
// the caller gave.
#pragma once

#include <cstddef>
#include <new>
#include <span>

#include <attune/core/plan.hpp>

#include "structs.hpp"

namespace attune::c {

class Workspace {
 public:
  /// Throws std::bad_alloc when the caller's allocator has no memory, InvalidArgument when what it
  /// gives is not aligned.
  Workspace(const attune_call& call, std::size_t bytes, const DeviceId& device) : call_(call) {
    if (call.allocate == nullptr) {
      memory_ = call.workspace;
      bytes_ = call.workspace_bytes;
    } else if (bytes > 0) {
      allocated_ = call.allocate(call.user, bytes, device_of(device), call.stream);
      if (allocated_ == nullptr) throw std::bad_alloc();
      if (reinterpret_cast<std::uintptr_t>(allocated_) % ATTUNE_WORKSPACE_ALIGNMENT != 0) {
        release();
        throw InvalidArgument(
            str("call: allocate: expected memory at a multiple of ", ATTUNE_WORKSPACE_ALIGNMENT));
      }
      memory_ = allocated_;
      bytes_ = bytes;
    }
    is_enough_ = bytes_ >= bytes;
  }
  ~Workspace() { release(); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// False: the caller gave too little, and no allocator.
  bool is_enough() const { return is_enough_; }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  void release() const {
    if (allocated_ != nullptr && call_.release != nullptr) call_.release(call_.user, allocated_);
  }

  const attune_call& call_;
  void* memory_ = nullptr;
  void* allocated_ = nullptr;
  std::size_t bytes_ = 0;
  bool is_enough_ = false;
};

/// Runs a call of `Op` in the caller's scratch memory, as a plan that is launched once; by `into`,
/// with attune's pool, where the caller gave none or too little, and where outputs lie otherwise
/// than a plan takes them to.
template <class MakePlan, class MakeArgs, class Into>
void run_once(const attune_call& call, MakePlan&& make_plan, MakeArgs&& make_args, Into&& into) {
  if (call.workspace == nullptr && call.allocate == nullptr) return into();
  const auto plan = make_plan();
  const auto args = make_args();  // valid from here on
  const Workspace workspace(call, plan.workspace_bytes(), plan.device().info().id);
  if (!workspace.is_enough()) return into();
  try {
    plan.launch(args, call.stream, workspace.span());
  } catch (const InvalidArgument&) {  // all else is valid: the layout of outputs is another one
    into();
  }
}

}  // namespace attune::c
