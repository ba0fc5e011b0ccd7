#include "structs.hpp"

#include <iterator>
#include <span>
#include <string>

#include <attune/core/error.hpp>

#include "handles.hpp"

namespace attune::c {
namespace {

/// DLTensor and its parts as DLPack 1.x lays them out (dlpack.h), for comparison alone.
struct DlDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct DlDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t ndim;
  DlDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
static_assert(sizeof(attune_tensor) == sizeof(DlTensor) &&
              alignof(attune_tensor) == alignof(DlTensor));
static_assert(offsetof(attune_tensor, data) == offsetof(DlTensor, data));
static_assert(offsetof(attune_tensor, device) == offsetof(DlTensor, device));
static_assert(offsetof(attune_tensor, ndim) == offsetof(DlTensor, ndim));
static_assert(offsetof(attune_tensor, dtype) == offsetof(DlTensor, dtype));
static_assert(offsetof(attune_tensor, shape) == offsetof(DlTensor, shape));
static_assert(offsetof(attune_tensor, strides) == offsetof(DlTensor, strides));
static_assert(offsetof(attune_tensor, byte_offset) == offsetof(DlTensor, byte_offset));
static_assert(offsetof(attune_device, index) == offsetof(DlDevice, device_id));
static_assert(offsetof(attune_dtype, bits) == offsetof(DlDataType, bits) &&
              offsetof(attune_dtype, lanes) == offsetof(DlDataType, lanes));

/// A struct's size beyond this is what was in memory before, not a size.
constexpr std::uint32_t kLargestStruct = 4096;

/// "f64", "u8", "complex128": DLPack's codes in its order.
std::string name_of(attune_dtype type) {
  constexpr std::string_view kKinds[] = {"i", "u", "f", "opaque", "bf", "complex", "bool"};
  const std::string name = type.code < std::size(kKinds)
                               ? str(kKinds[type.code], int{type.bits})
                               : str("of code ", int{type.code}, " with ", int{type.bits}, " bits");
  return type.lanes == 1 ? name : str(name, " of ", type.lanes, " lanes");
}

DType dtype_of(std::string_view op, const char* name, attune_dtype type) {
  if (type.lanes == 1) {
    if (type.code == ATTUNE_FLOAT && type.bits == 32) return DType::kF32;
    if (type.code == ATTUNE_FLOAT && type.bits == 16) return DType::kF16;
    if (type.code == ATTUNE_BFLOAT && type.bits == 16) return DType::kBF16;
    if (type.code == ATTUNE_INT && type.bits == 32) return DType::kI32;
    if (type.code == ATTUNE_INT && type.bits == 64) return DType::kI64;
  }
  throw InvalidArgument(str(op, ": ", name, ": dtype ", name_of(type),
                            ", expected f32, f16 or bf16, or of indices i32 or i64"));
}

TensorView view_of(std::string_view op, const char* name, const attune_tensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > Extents::kMaxRank) {
    throw InvalidArgument(
        str(op, ": ", name, ": rank ", tensor.ndim, ", expected at most ", Extents::kMaxRank));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    throw InvalidArgument(str(op, ": ", name, ": shape is NULL"));
  }
  TensorView view;
  view.dtype = dtype_of(op, name, tensor.dtype);
  try {
    view.device = device_id(tensor.device);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str(op, ": ", name, ": ", error.what()));
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  view.shape = Extents(std::span(tensor.shape, rank));
  view.strides = tensor.strides == nullptr ? contiguous_strides(view.shape)
                                           : Extents(std::span(tensor.strides, rank));
  if (tensor.data != nullptr) {
    view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  }
  return view;
}

}  // namespace

std::size_t detail::readable_bytes(const char* name, const void* given, std::size_t own_size,
                                   std::uint32_t known_flags) {
  require(name, given);
  std::uint32_t size = 0;
  std::uint32_t flags = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < 8 || size > kLargestStruct || size % alignof(void*) != 0) {
    throw InvalidArgument(str(name, ": struct_size is ", size,
                              ", expected sizeof the struct, which is ", own_size,
                              " in this library"));
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  std::memcpy(&flags, bytes + sizeof size, sizeof flags);
  if ((flags & ~known_flags) != 0) {
    throw InvalidArgument(
        str(name, ": flags has bits ", flags & ~known_flags, ", which this library does not know"));
  }
  if (size <= own_size) return size;
  if (std::any_of(bytes + own_size, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    throw InvalidArgument(str(name, ": struct_size is ", size, ", of which this library knows ",
                              own_size, " bytes: a member behind these is given, which is newer"));
  }
  return own_size;
}

void require(const char* name, const void* pointer) {
  if (pointer == nullptr) throw InvalidArgument(str(name, ": NULL"));
}

DeviceId device_id(attune_device device) {
  switch (device.type) {
    case ATTUNE_CPU:
    case ATTUNE_CUDA_HOST:
      return {};
    case ATTUNE_CUDA:
    case ATTUNE_CUDA_MANAGED:
      return {.backend = "gpu", .index = device.index};
    default:
      throw InvalidArgument(str("device type ", device.type, ", expected ", int{ATTUNE_CPU},
                                " (CPU), ", int{ATTUNE_CUDA}, " (CUDA), ", int{ATTUNE_CUDA_HOST},
                                " or ", int{ATTUNE_CUDA_MANAGED}));
  }
}

attune_device device_of(const DeviceId& id) {
  return {id.backend == "cpu" ? ATTUNE_CPU : ATTUNE_CUDA, id.index};
}

TensorView TensorReader::required(const char* name, const attune_tensor* tensor) const {
  if (tensor == nullptr) throw InvalidArgument(str(op_, ": ", name, ": not given (NULL)"));
  return view_of(op_, name, *tensor);
}

OptionalTensorView TensorReader::optional(const char* name, const attune_tensor* tensor) const {
  if (tensor == nullptr) return std::nullopt;
  return view_of(op_, name, *tensor);
}

OptionalConstTensorView TensorReader::optional_input(const char* name,
                                                     const attune_tensor* tensor) const {
  if (tensor == nullptr) return std::nullopt;
  return ConstTensorView(view_of(op_, name, *tensor));
}

Context& context_of(attune_context* context) {
  return context == nullptr ? default_context() : *context->context;
}

attune_call read_call(const attune_call* given) {
  if (given == nullptr) return {};
  const attune_call call = read_struct("call", given, ATTUNE_ALLOW_TF32);
  if (reinterpret_cast<std::uintptr_t>(call.workspace) % ATTUNE_WORKSPACE_ALIGNMENT != 0) {
    throw InvalidArgument(str("call: workspace: expected an address that is a multiple of ",
                              ATTUNE_WORKSPACE_ALIGNMENT));
  }
  if (call.workspace == nullptr && call.workspace_bytes > 0) {
    throw InvalidArgument(
        str("call: workspace: NULL, but workspace_bytes is ", call.workspace_bytes));
  }
  if (call.workspace != nullptr && call.allocate != nullptr) {
    throw InvalidArgument("call: allocate: given with a workspace");
  }
  if (call.release != nullptr && call.allocate == nullptr) {
    throw InvalidArgument("call: release: given without allocate");
  }
  return call;
}

ops::CallOptions options_of(const attune_call& call) {
  ops::CallOptions options;
  try {
    if (call.platform != nullptr) options.platform = call.platform;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str("call: platform: ", error.what()));
  }
  if (call.config != nullptr) options.config = call.config;
  options.allow_tf32 = (call.flags & ATTUNE_ALLOW_TF32) != 0;
  options.context = &context_of(call.context);
  options.stream = call.stream;
  if (call.workspace_limit > 0) options.workspace_limit = call.workspace_limit;
  return options;
}

}  // namespace attune::c
