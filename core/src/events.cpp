#include <exception>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/events.hpp>
#include <attune/core/log.hpp>

namespace attune {

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::kSelected:
      return "selected";
    case EventKind::kPrepared:
      return "prepared";
    case EventKind::kTuneStarted:
      return "tune_started";
    case EventKind::kTrial:
      return "trial";
    case EventKind::kTuneFinished:
      return "tune_finished";
    case EventKind::kTuneSkipped:
      return "tune_skipped";
    case EventKind::kDatabase:
      return "database";
    case EventKind::kReloaded:
      return "reloaded";
    case EventKind::kLaunchFailed:
      return "launch_failed";
  }
  return "?";
}

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

EventBus::Subscription EventBus::subscribe(EventSink sink, MemoryHits hits) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  listeners_.emplace(id, Listener{std::move(sink), hits});
  count_.fetch_add(1, std::memory_order_relaxed);
  if (hits == MemoryHits::kTold) wanting_hits_.fetch_add(1, std::memory_order_relaxed);
  return {this, id};
}

void EventBus::remove(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) return;
  const bool wanted_hits = found->second.hits == MemoryHits::kTold;
  listeners_.erase(found);
  count_.fetch_sub(1, std::memory_order_relaxed);
  if (wanted_hits) wanting_hits_.fetch_sub(1, std::memory_order_relaxed);
}

void EventBus::emit(const Event& event) {
  if (!active()) return;
  const bool is_memory_hit = event.kind == EventKind::kSelected && event.tier == Tier::kMemory;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, listener] : listeners_) {
    if (is_memory_hit && listener.hits == MemoryHits::kLeftOut) continue;
    try {
      listener.sink(event);
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, str("an event listener threw: ", error.what()));
    }
  }
}

}  // namespace attune
