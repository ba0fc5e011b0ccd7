// Events: every decision of the framework, with its reason, as it happens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include <attune/core/selection.hpp>

namespace attune {

enum class EventKind {
  kSelected,      // tier, kernel, config, reason: one for each select(), memory hits included
  kTuneStarted,   // candidates
  kTrial,         // kernel, config, outcome in `reason`, median_us when it was timed
  kTuneFinished,  // kernel, config, median_us, default_us
  kTuneSkipped,   // reason: "over budget", "another thread tunes it", "stream is capturing"
  kDatabase,      // reason: a database was skipped, a row was bad, a write failed
};

/// Texts are borrowed for the call of the sink.
struct Event {
  EventKind kind = EventKind::kSelected;
  std::string_view op = {};       // as the caller says it
  std::string_view problem = {};  // its text; "" on a memory hit
  std::string_view kernel = {};
  std::string_view config = {};  // "" on a memory hit
  std::string_view reason = {};
  Tier tier = Tier::kHeuristic;
  int version = 0;  // of the kernel
  std::int64_t candidates = 0;
  double median_us = 0;
  double default_us = 0;
};

using EventSink = std::function<void(const Event&)>;

/// Hands events to sinks. Without a sink an event costs one relaxed load.
class EventBus {
 public:
  /// Removes its sink when destroyed, after calls of it in progress have ended. The bus must
  /// outlive it.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept;
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription();

   private:
    friend class EventBus;
    Subscription(EventBus* bus, std::uint64_t id) : bus_(bus), id_(id) {}
    EventBus* bus_ = nullptr;
    std::uint64_t id_ = 0;
  };

  /// Sinks are called from whichever thread decides, one at a time. A sink must not subscribe or
  /// call ops of the same context; what it throws is logged and dropped, since a listener must not
  /// change what is computed.
  [[nodiscard]] Subscription subscribe(EventSink sink);

  bool active() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  void emit(const Event& event);

 private:
  void remove(std::uint64_t id) noexcept;

  std::atomic<int> count_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, EventSink> sinks_;
  std::uint64_t next_id_ = 1;
};

}  // namespace attune
