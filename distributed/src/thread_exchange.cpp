#include <condition_variable>
#include <cstring>
#include <mutex>

#include <attune/core/error.hpp>
#include <attune/distributed/thread_exchange.hpp>

namespace attune::distributed {

/// A round begins when its first rank has come, and ends when the last one has taken what it wants.
struct ThreadExchange::Group {
  Group(int ranks, std::chrono::milliseconds most)
      : parts(static_cast<std::size_t>(ranks)), patience(most) {}

  struct Part {
    const void* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Waits until `is_over`. Throws when that takes too long, or another rank has found so.
  template <class Over>
  void wait(std::unique_lock<std::mutex>& lock, Over&& is_over) {
    const bool in_time = changed.wait_for(lock, patience, [&] { return is_apart || is_over(); });
    if (in_time && !is_apart) return;
    is_apart = true;
    changed.notify_all();
    throw ExecutionError(str("all_gather: a rank did not come within ", patience.count(), " ms"));
  }

  bool sizes_differ() const {
    for (const Part& part : parts) {
      if (part.bytes != parts[0].bytes) return true;
    }
    return false;
  }

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::vector<Part> parts;
  std::size_t arrived = 0;
  std::size_t left = 0;  // of a round that is complete
  std::uint64_t round = 0;
  bool is_apart = false;
  const std::chrono::milliseconds patience;
};

std::vector<std::unique_ptr<Exchange>> ThreadExchange::make(int ranks,
                                                            std::chrono::milliseconds patience) {
  if (ranks < 1)
    throw InvalidArgument(str("ThreadExchange: ", ranks, " ranks: expected at least 1"));
  const auto group = std::make_shared<Group>(ranks, patience);
  std::vector<std::unique_ptr<Exchange>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::unique_ptr<Exchange>(new ThreadExchange(group, rank)));
  }
  return all;
}

int ThreadExchange::size() const noexcept { return static_cast<int>(group_->parts.size()); }

void ThreadExchange::all_gather(const void* send, void* recv, std::size_t bytes, void* /*stream*/) {
  Group& group = *group_;
  std::unique_lock lock(group.mutex);
  // Ranks of the last round may still be taking what they want.
  group.wait(lock, [&] { return group.left == 0; });
  group.parts[static_cast<std::size_t>(rank_)] = {send, bytes};
  const std::uint64_t round = group.round;
  if (++group.arrived == group.parts.size()) {
    group.arrived = 0;
    group.left = group.parts.size();
    ++group.round;
    group.changed.notify_all();
  } else {
    group.wait(lock, [&] { return group.round != round; });
  }
  // Nobody changes the parts before everybody has left.
  const bool differ = group.sizes_differ();
  lock.unlock();
  for (std::size_t i = 0; !differ && bytes > 0 && i < group.parts.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(recv) + i * bytes, group.parts[i].data, bytes);
  }
  lock.lock();
  --group.left;
  group.changed.notify_all();
  // What was sent is the caller's again once everybody has it.
  group.wait(lock, [&] { return group.left == 0 || group.round != round + 1; });
  if (differ) throw InvalidArgument("all_gather: ranks call it with different numbers of bytes");
}

}  // namespace attune::distributed
