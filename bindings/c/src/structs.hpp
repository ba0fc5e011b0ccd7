// What callers hand over, as C++ has it: structs of any age, tensors, and options of a call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <attune/attune.h>
#include <attune/core/device.hpp>
#include <attune/core/optional_view.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/call_options.hpp>

namespace attune::c {

namespace detail {

/// Checks a struct's size, its bytes behind the `own_size` that this library knows, and its flags.
/// Returns how many bytes to read. Throws InvalidArgument.
std::size_t readable_bytes(const char* name, const void* given, std::size_t own_size,
                           std::uint32_t known_flags);

}  // namespace detail

/// A copy of a struct that begins with `struct_size` and `flags`, whether the caller's is older or
/// newer than ours: members it does not have are zero, and those that we do not have must be.
/// Throws InvalidArgument, naming `name`.
template <class Struct>
Struct read_struct(const char* name, const Struct* given, std::uint32_t known_flags = 0) {
  static_assert(offsetof(Struct, struct_size) == 0 && offsetof(Struct, flags) == 4);
  Struct own{};
  std::memcpy(&own, given, detail::readable_bytes(name, given, sizeof own, known_flags));
  return own;
}

/// Throws InvalidArgument: "<name>: NULL".
void require(const char* name, const void* pointer);

/// The device by its id in attune. Throws InvalidArgument for a type that attune.h does not name.
DeviceId device_id(attune_device device);
/// The reverse, for callers' functions.
attune_device device_of(const DeviceId& id);

/// Views of the tensors of a call; messages name `op`. They throw InvalidArgument.
class TensorReader {
 public:
  explicit TensorReader(std::string_view op) : op_(op) {}

  TensorView required(const char* name, const attune_tensor* tensor) const;
  OptionalTensorView optional(const char* name, const attune_tensor* tensor) const;
  OptionalConstTensorView optional_input(const char* name, const attune_tensor* tensor) const;

 private:
  std::string_view op_;
};

/// The process's own context for NULL.
Context& context_of(attune_context* context);

/// A caller's attune_call, NULL for all defaults. Throws InvalidArgument.
attune_call read_call(const attune_call* given);
/// Those of a plan: without the memory of one call.
ops::CallOptions options_of(const attune_call& call);

}  // namespace attune::c
