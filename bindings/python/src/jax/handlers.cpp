// attune as custom calls of XLA's foreign function interface, for CPUs and CUDA devices, and what
// attune_kernels/jax.py asks for while it traces. Needs jaxlib's headers and attune.h, and neither
// Python nor CUDA. XLA runs what was built with headers that are not newer than its own.
//
// The last result of each call is its workspace, of the size that attune_jax_workspace_bound()
// said.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xla/ffi/api/ffi.h>

#include <attune/attune.h>

#include "calls.hpp"
#include "copies.hpp"

namespace ffi = xla::ffi;

namespace attune_jax {
namespace {

ffi::Error error_of(attune_status status) {
  const char* const text = attune_last_error();
  switch (status) {
    case ATTUNE_OK:
      return ffi::Error::Success();
    case ATTUNE_INVALID_ARGUMENT:
      return ffi::Error::InvalidArgument(text);
    case ATTUNE_UNSUPPORTED:
      return {ffi::ErrorCode::kUnimplemented, text};
    case ATTUNE_UNAVAILABLE:
    case ATTUNE_NOT_TUNED:
      return {ffi::ErrorCode::kNotFound, text};
    case ATTUNE_OUT_OF_MEMORY:
      return {ffi::ErrorCode::kResourceExhausted, text};
    default:
      return ffi::Error::Internal(text);
  }
}

/// A type that attune refuses by name is given as {0, 0, 0}.
attune_dtype dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return {ATTUNE_FLOAT, 32, 1};
    case ffi::DataType::F16:
      return {ATTUNE_FLOAT, 16, 1};
    case ffi::DataType::BF16:
      return {ATTUNE_BFLOAT, 16, 1};
    case ffi::DataType::S32:
      return {ATTUNE_INT, 32, 1};
    case ffi::DataType::S64:
      return {ATTUNE_INT, 64, 1};
    default:
      return {0, 0, 0};
  }
}

attune_tensor tensor_of(const ffi::AnyBuffer& buffer, attune_device device) {
  attune_tensor tensor{};
  tensor.data = buffer.untyped_data();
  tensor.device = device;
  tensor.ndim = static_cast<std::int32_t>(buffer.dimensions().size());
  tensor.dtype = dtype_of(buffer.element_type());
  tensor.shape = buffer.dimensions().begin();
  return tensor;
}

/// What XLA calls a handler with.
struct Arguments {
  ffi::RemainingArgs in;
  ffi::RemainingRets out;
  Attributes attributes;
  attune_device device;
  void* stream;
};

/// The arrays of a call, and its workspace.
struct Buffers {
  std::vector<attune_tensor> arrays;
  Copy states;  // to where they come out, unless that is where they go in
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

ffi::ErrorOr<Buffers> buffers_of(Call call, const Arguments& arguments) {
  Buffers buffers;
  buffers.arrays.reserve(arguments.in.size() + arguments.out.size());
  for (std::size_t i = 0; i < arguments.in.size(); ++i) {
    const auto array = arguments.in.get<ffi::AnyBuffer>(i);
    if (array.has_error()) return ffi::Unexpected(array.error());
    buffers.arrays.push_back(tensor_of(*array, arguments.device));
  }
  for (std::size_t i = 0; i < arguments.out.size(); ++i) {
    auto result = arguments.out.get<ffi::AnyBuffer>(i);
    if (result.has_error()) return ffi::Unexpected(result.error());
    const attune_tensor array = tensor_of(**result, arguments.device);
    if (i + 1 == arguments.out.size()) {
      // Aligned here, for which the bound has room.
      const auto address = reinterpret_cast<std::uintptr_t>(array.data);
      const std::size_t behind =
          (ATTUNE_WORKSPACE_ALIGNMENT - address % ATTUNE_WORKSPACE_ALIGNMENT) %
          ATTUNE_WORKSPACE_ALIGNMENT;
      const std::size_t bytes = (*result)->size_bytes();
      if (array.data == nullptr || bytes <= behind) continue;
      buffers.workspace = static_cast<std::byte*>(array.data) + behind;
      buffers.workspace_bytes = bytes - behind;
    } else if (updates_states(call) && i == 1) {
      // States come out where they went in, as jax.py says; but of arrays that a loop on a GPU goes
      // over, XLA passes slices, of one array in and of another one out.
      attune_tensor& states = buffers.arrays[3];
      if (array.data != states.data) {
        buffers.states = {array.data, states.data, (*result)->size_bytes()};
        states.data = array.data;
      }
    } else {
      buffers.arrays.push_back(array);
    }
  }
  return buffers;
}

ffi::Error run(Call call, const Arguments& arguments, bool execute) {
  ffi::ErrorOr<Buffers> buffers = buffers_of(call, arguments);
  if (buffers.has_error()) return buffers.error();
  const BoundCall bound(call, arguments.attributes, std::move(buffers->arrays));
  if (!bound.is_complete()) {
    return ffi::Error::Internal("attune: the arrays are not those that the attributes name");
  }
  if (execute && !queue(buffers->states, arguments.device, arguments.stream)) {
    return ffi::Error::Internal("attune: states cannot be copied to where they come out");
  }
  return error_of(execute
                      ? bound.run(arguments.stream, buffers->workspace, buffers->workspace_bytes)
                      : bound.plan(arguments.stream, buffers->workspace_bytes, nullptr));
}

template <Call kCall>
ffi::Error execute_on_cpu(ffi::RemainingArgs in, ffi::RemainingRets out, std::int64_t given,
                          std::int64_t options, double scale, std::int64_t layer_idx,
                          std::int64_t num_layers, std::int64_t snapshot_every,
                          std::string_view platform_text, std::string_view config_text) {
  const std::string platform(platform_text);
  const std::string config(config_text);
  return run(kCall,
             {in,
              out,
              {given, options, scale, layer_idx, num_layers, snapshot_every, platform.c_str(),
               config.c_str()},
              {ATTUNE_CPU, 0},
              nullptr},
             true);
}

template <Call kCall, bool kExecute>
ffi::Error run_on_cuda(void* stream, std::int32_t device, ffi::RemainingArgs in,
                       ffi::RemainingRets out, std::int64_t given, std::int64_t options,
                       double scale, std::int64_t layer_idx, std::int64_t num_layers,
                       std::int64_t snapshot_every, std::string_view platform_text,
                       std::string_view config_text) {
  const std::string platform(platform_text);
  const std::string config(config_text);
  return run(kCall,
             {in,
              out,
              {given, options, scale, layer_idx, num_layers, snapshot_every, platform.c_str(),
               config.c_str()},
              {ATTUNE_CUDA, device},
              stream},
             kExecute);
}

/// What all bindings end with: arrays, and the attributes in the order of `Attributes`.
template <class Binding>
auto with_arguments(Binding&& binding) {
  return std::forward<Binding>(binding)
      .RemainingArgs()
      .RemainingRets()
      .template Attr<std::int64_t>("given")
      .template Attr<std::int64_t>("options")
      .template Attr<double>("scale")
      .template Attr<std::int64_t>("layer_idx")
      .template Attr<std::int64_t>("num_layers")
      .template Attr<std::int64_t>("snapshot_every")
      .template Attr<std::string_view>("platform")
      .template Attr<std::string_view>("config");
}

auto on_cpu() { return with_arguments(ffi::Ffi::Bind()); }

/// A stage of a call on a GPU: `initialize` may tune and load; `execute` looks up and launches, so
/// that a command buffer may hold it.
template <ffi::ExecutionStage kStage>
auto on_cuda() {
  return with_arguments(ffi::Ffi::Bind<kStage>()
                            .template Ctx<ffi::PlatformStream<void*>>()
                            .template Ctx<ffi::DeviceOrdinal>());
}
constexpr auto kInitialize = ffi::ExecutionStage::kInitialize;
constexpr auto kExecute = ffi::ExecutionStage::kExecute;

}  // namespace
}  // namespace attune_jax

// Hidden symbols are the default here; these are what jax.py asks for.
extern "C" {
#define ATTUNE_JAX_HANDLER ATTUNE_API XLA_FFI_Error*
ATTUNE_JAX_HANDLER attune_jax_forward_cpu(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_backward_cpu(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_decode_cpu(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_pool_cpu(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_forward_cuda(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_backward_cuda(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_decode_cuda(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_pool_cuda(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_forward_cuda_initialize(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_backward_cuda_initialize(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_decode_cuda_initialize(XLA_FFI_CallFrame*);
ATTUNE_JAX_HANDLER attune_jax_pool_cuda_initialize(XLA_FFI_CallFrame*);
#undef ATTUNE_JAX_HANDLER

/// While a call is traced: bytes of the workspace that its choices may need which need at most
/// `limit`; the status of a call that is none, negated, with attune_last_error(). `dtypes` holds
/// code and bits of each array, in and out but for states that are updated; `extents` their shapes,
/// one behind the other.
ATTUNE_API std::int64_t attune_jax_workspace_bound(
    std::int32_t call, std::int64_t given, std::int64_t options, double scale,
    std::int64_t layer_idx, std::int64_t num_layers, std::int64_t snapshot_every,
    const char* platform, const char* config, std::int32_t device_type, std::int32_t count,
    const std::int32_t* ranks, const std::int32_t* dtypes, const std::int64_t* extents,
    std::int64_t limit);
}

namespace jax = attune_jax;
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_forward_cpu, jax::execute_on_cpu<jax::Call::kForward>,
                              jax::on_cpu());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_backward_cpu, jax::execute_on_cpu<jax::Call::kBackward>,
                              jax::on_cpu());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_decode_cpu, jax::execute_on_cpu<jax::Call::kDecode>,
                              jax::on_cpu());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_pool_cpu, jax::execute_on_cpu<jax::Call::kPool>,
                              jax::on_cpu());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_forward_cuda,
                              (jax::run_on_cuda<jax::Call::kForward, true>),
                              jax::on_cuda<jax::kExecute>(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_backward_cuda,
                              (jax::run_on_cuda<jax::Call::kBackward, true>),
                              jax::on_cuda<jax::kExecute>(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_decode_cuda, (jax::run_on_cuda<jax::Call::kDecode, true>),
                              jax::on_cuda<jax::kExecute>(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_pool_cuda, (jax::run_on_cuda<jax::Call::kPool, true>),
                              jax::on_cuda<jax::kExecute>(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_forward_cuda_initialize,
                              (jax::run_on_cuda<jax::Call::kForward, false>),
                              jax::on_cuda<jax::kInitialize>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_backward_cuda_initialize,
                              (jax::run_on_cuda<jax::Call::kBackward, false>),
                              jax::on_cuda<jax::kInitialize>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_decode_cuda_initialize,
                              (jax::run_on_cuda<jax::Call::kDecode, false>),
                              jax::on_cuda<jax::kInitialize>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_pool_cuda_initialize,
                              (jax::run_on_cuda<jax::Call::kPool, false>),
                              jax::on_cuda<jax::kInitialize>());

std::int64_t attune_jax_workspace_bound(std::int32_t call, std::int64_t given, std::int64_t options,
                                        double scale, std::int64_t layer_idx,
                                        std::int64_t num_layers, std::int64_t snapshot_every,
                                        const char* platform, const char* config,
                                        std::int32_t device_type, std::int32_t count,
                                        const std::int32_t* ranks, const std::int32_t* dtypes,
                                        const std::int64_t* extents, std::int64_t limit) {
  std::vector<attune_tensor> arrays(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    arrays[i].device = {device_type, 0};
    arrays[i].ndim = ranks[i];
    arrays[i].dtype = {static_cast<std::uint8_t>(dtypes[2 * i]),
                       static_cast<std::uint8_t>(dtypes[2 * i + 1]), 1};
    arrays[i].shape = extents;
    extents += ranks[i];
  }
  const jax::BoundCall bound(
      jax::Call{call},
      {given, options, scale, layer_idx, num_layers, snapshot_every, platform, config},
      std::move(arrays));
  // Which choices there are does not depend on what is known: nothing is looked up or tuned here.
  attune_scope* scope = nullptr;
  attune_status status = attune_scope_policy("heuristic", &scope);
  if (status != ATTUNE_OK) return -status;
  std::size_t bytes = 0;
  status = bound.plan(nullptr, static_cast<std::size_t>(limit), &bytes);
  attune_scope_end(scope);
  return status == ATTUNE_OK ? static_cast<std::int64_t>(bytes) : -std::int64_t{status};
}
