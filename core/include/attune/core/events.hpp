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
  kPrepared,      // kernel, config, prepare_us, reason: what a kernel compiled, or found on disk
  kTuneStarted,   // candidates
  kTrial,         // kernel, config, outcome in `reason`, median_us when it was timed; `fault`
  kTuneFinished,  // kernel, config, median_us, default_us; prepare_us, of all candidates
  kTuneSkipped,   // reason: "over budget", "another thread tunes it", "stream is capturing"
  kDatabase,      // reason: a database was skipped, a row was bad, a write failed
  kReloaded,      // reason: which databases hold other rows than before
  kLaunchFailed,  // kernel, config, what was thrown in `reason`; `fault`
};
/// "selected", "prepared", "tune_started", "trial", "tune_finished", "tune_skipped", "database",
/// "reloaded", "launch_failed".
std::string_view to_string(EventKind kind);

/// Texts are borrowed for the call of the sink.
struct Event {
  EventKind kind = EventKind::kSelected;
  std::string_view op = {};            // as the caller says it
  std::string_view problem = {};       // its text; "" on a memory hit
  std::string_view device_class = {};  // "" on a memory hit
  std::string_view kernel = {};
  std::string_view config = {};  // "" on a memory hit
  std::string_view reason = {};
  Tier tier = Tier::kHeuristic;
  int version = 0;     // of the kernel
  bool fault = false;  // a candidate was wrong, failed or crashed, or a launch threw
  std::int64_t candidates = 0;
  double median_us = 0;             // microseconds, or in the unit of the objective
  double default_us = 0;            // likewise
  std::string_view objective = {};  // what a tuning minimises where that is not the time
  double prepare_us = 0;
};

using EventSink = std::function<void(const Event&)>;

/// Hands events to sinks. Without a sink an event costs one relaxed load.
class EventBus {
 public:
  /// Whether a sink is told of the calls that memory answers, which are nearly all calls. Each
  /// costs a lock then; a sink that only wants what is rare leaves them as fast as without it.
  enum class MemoryHits { kTold, kLeftOut };

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
  [[nodiscard]] Subscription subscribe(EventSink sink, MemoryHits hits = MemoryHits::kTold);

  bool active() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Whether anybody is told of memory hits.
  bool tells_memory_hits() const noexcept {
    return wanting_hits_.load(std::memory_order_relaxed) != 0;
  }
  void emit(const Event& event);

 private:
  struct Listener {
    EventSink sink;
    MemoryHits hits = MemoryHits::kTold;
  };
  void remove(std::uint64_t id) noexcept;

  std::atomic<int> count_ = 0;
  std::atomic<int> wanting_hits_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, Listener> listeners_;
  std::uint64_t next_id_ = 1;
};

}  // namespace attune
