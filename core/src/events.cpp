#include <exception>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/events.hpp>
#include <attune/core/log.hpp>

namespace attune {

EventBus::Subscription::Subscription(Subscription&& other) noexcept
    : bus_(std::exchange(other.bus_, nullptr)), id_(other.id_) {}

EventBus::Subscription& EventBus::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    if (bus_ != nullptr) bus_->remove(id_);
    bus_ = std::exchange(other.bus_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

EventBus::Subscription::~Subscription() {
  if (bus_ != nullptr) bus_->remove(id_);
}

EventBus::Subscription EventBus::subscribe(EventSink sink) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  sinks_.emplace(id, std::move(sink));
  count_.fetch_add(1, std::memory_order_relaxed);
  return {this, id};
}

void EventBus::remove(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  sinks_.erase(id);
  count_.fetch_sub(1, std::memory_order_relaxed);
}

void EventBus::emit(const Event& event) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, sink] : sinks_) {
    try {
      sink(event);
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, str("an event listener threw: ", error.what()));
    }
  }
}

}  // namespace attune
