#include "chain/single_flight.hpp"

#include <algorithm>

namespace attune::chain {

std::optional<SingleFlight::Ticket> SingleFlight::enter(const SelectionKey& key,
                                                        std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (postponed(key)) return std::nullopt;
  if (!left_.wait_for(lock, patience, [&] { return !flying(key); })) return std::nullopt;
  flying_.push_back(key);
  return Ticket(this, key);
}

void SingleFlight::postpone(const SelectionKey& key, Clock::time_point until) {
  const std::lock_guard lock(mutex_);
  postponed_.push_back({key, until});
}

void SingleFlight::leave(const SelectionKey& key) noexcept {
  {
    const std::lock_guard lock(mutex_);
    std::erase(flying_, key);
  }
  left_.notify_all();
}

bool SingleFlight::flying(const SelectionKey& key) const {
  return std::find(flying_.begin(), flying_.end(), key) != flying_.end();
}

bool SingleFlight::postponed(const SelectionKey& key) {
  const Clock::time_point now = Clock::now();
  std::erase_if(postponed_, [&](const Postponed& entry) { return entry.until <= now; });
  return std::any_of(postponed_.begin(), postponed_.end(),
                     [&](const Postponed& entry) { return entry.key == key; });
}

}  // namespace attune::chain
