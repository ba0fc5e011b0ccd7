// Memory of a device by an exchange of host memory: on GPUs for ranks that are threads, or an MPI
// that knows host memory alone.
//
//   StagedExchange states(exchange, device);  // for launches; plans are made with `exchange` itself
#pragma once

#include <cstddef>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/exchange.hpp>

namespace attune::distributed {

/// Copies to the host, gathers there and copies back. Unlike other exchanges of a device's memory
/// it waits for the stream, which so must not be captured. NcclExchange needs no such detour.
class StagedExchange final : public Exchange {
 public:
  /// Both outlive this. Memory is `device`'s in every call.
  StagedExchange(Exchange& host, const Device& device) : host_(host), device_(device) {}

  int rank() const noexcept override { return host_.rank(); }
  int size() const noexcept override { return host_.size(); }
  /// Throws what `host` throws, and what the device's copies do.
  void all_gather(const void* send, void* recv, std::size_t bytes, void* stream) override {
    std::vector<std::byte> own(bytes), all(bytes * static_cast<std::size_t>(size()));
    device_.copy_to_host(own.data(), send, bytes, stream);
    device_.synchronize(stream);
    host_.all_gather(own.data(), all.data(), bytes, nullptr);
    device_.copy_to_device(recv, all.data(), all.size(), stream);
    device_.synchronize(stream);  // the copy reads `all`
  }

 private:
  Exchange& host_;
  const Device& device_;
};

}  // namespace attune::distributed
