// Where a call goes: its context, device, stream and override.
#pragma once

#include <optional>
#include <string_view>

#include <attune/core/executor.hpp>
#include <attune/ops/call_options.hpp>

namespace attune::ops {

class CallSite {
 public:
  /// `op` is what the caller says, `target` the op whose kernels serve it. Throws InvalidArgument
  /// for a backend that q is not on or an override that cannot be read, Unavailable for a device
  /// that the context has not.
  CallSite(std::string_view op, std::string_view target, const CallOptions& options,
           const DeviceId& device);
  CallSite(const CallSite&) = delete;  // the request borrows the override
  CallSite& operator=(const CallSite&) = delete;

  Executor executor() const { return Executor(*context_); }
  const Request& request() const { return request_; }

  /// A new tensor on the call's device, in the order of its stream. One of the host's outlives the
  /// context, whose host may be one of its own.
  Tensor allocate(DType dtype, const Extents& shape) const {
    const Device& host = cpu_device();
    const bool on_host = request_.device->info().id == host.info().id;
    return Tensor(dtype, shape, on_host ? host : *request_.device, request_.stream);
  }

 private:
  Context* context_;
  std::optional<NamedConfig> config_;
  Request request_;
};

}  // namespace attune::ops
