// DLPack as the C structs that cross between libraries: github.com/dmlc/dlpack, version 1.3. A
// DLTensor is attune_tensor, which has its layout.
#pragma once

#include <cstdint>

#include <attune/attune.h>

namespace attune_python::dlpack {

struct Version {
  std::uint32_t major = 1;
  std::uint32_t minor = 3;
};

/// What a capsule "dltensor_versioned" holds.
struct ManagedTensorVersioned {
  Version version;
  void* manager_context;
  void (*deleter)(ManagedTensorVersioned* self);
  std::uint64_t flags;
  attune_tensor tensor;
};

/// What a capsule "dltensor" holds: DLPack before 1.0, which cannot say that memory is read-only.
struct ManagedTensor {
  attune_tensor tensor;
  void* manager_context;
  void (*deleter)(ManagedTensor* self);
};

constexpr std::uint64_t kReadOnly = 1;

/// What the capsule "dlpack_exchange_api" of a type's __dlpack_c_exchange_api__ points to: arrays
/// of that type without a Python call. Each function returns 0, or -1 with a Python error.
struct ExchangeApi {
  Version version;
  const ExchangeApi* previous;
  int (*allocate)(const attune_tensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*managed_to_object)(ManagedTensorVersioned* tensor, void** out);
  /// Borrows: what `out` points to lives as long as the object is neither changed nor gone.
  int (*tensor_from_object)(void* object, attune_tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_index, void** out);
};

}  // namespace attune_python::dlpack
