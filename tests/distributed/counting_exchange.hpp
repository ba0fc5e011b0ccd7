// An exchange that counts what passes through it.
#pragma once

#include <memory>
#include <utility>

#include <attune/core/exchange.hpp>

namespace attune::test {

class CountingExchange final : public distributed::Exchange {
 public:
  explicit CountingExchange(std::unique_ptr<distributed::Exchange> exchange)
      : exchange_(std::move(exchange)) {}
  int rank() const noexcept override { return exchange_->rank(); }
  int size() const noexcept override { return exchange_->size(); }
  void all_gather(const void* send, void* recv, std::size_t bytes, void* stream) override {
    ++collectives;
    exchange_->all_gather(send, recv, bytes, stream);
  }
  int collectives = 0;

 private:
  std::unique_ptr<distributed::Exchange> exchange_;
};

}  // namespace attune::test
