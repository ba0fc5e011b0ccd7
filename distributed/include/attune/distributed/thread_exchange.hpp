// Ranks that are threads of one process: for tests, and for several devices in one program.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <attune/core/exchange.hpp>

namespace attune::distributed {

/// Of host memory only; StagedExchange takes a device's memory there. When a rank waits longer than
/// `patience` for the others, it throws ExecutionError, and so does every rank that waits or calls
/// later: the ranks have come apart. Ranks that call with different numbers of bytes all throw
/// InvalidArgument.
class ThreadExchange final : public Exchange {
 public:
  /// One for each of `ranks` threads, which may outlive each other. Throws InvalidArgument unless
  /// ranks is at least 1.
  static std::vector<std::unique_ptr<Exchange>> make(
      int ranks, std::chrono::milliseconds patience = std::chrono::minutes(5));

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override;
  void all_gather(const void* send, void* recv, std::size_t bytes, void* stream) override;

 private:
  struct Group;
  ThreadExchange(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace attune::distributed
