#include <vector>

#include <attune/distributed/staged_exchange.hpp>

namespace attune::distributed {

void StagedExchange::all_gather(const void* send, void* recv, std::size_t bytes, void* stream) {
  std::vector<std::byte> own(bytes), all(bytes * static_cast<std::size_t>(size()));
  device_.copy_to_host(own.data(), send, bytes, stream);
  device_.synchronize(stream);
  host_.all_gather(own.data(), all.data(), bytes, nullptr);
  device_.copy_to_device(recv, all.data(), all.size(), stream);
  device_.synchronize(stream);  // the copy reads `all`
}

}  // namespace attune::distributed
