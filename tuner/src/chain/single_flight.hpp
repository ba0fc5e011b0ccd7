// Which problems are being tuned in this process: one tuning of a problem at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/selection.hpp>

namespace attune::chain {

/// Linear in the number of problems, which is a handful.
class SingleFlight {
 public:
  using Clock = std::chrono::steady_clock;

  /// The right to tune one problem, until destroyed.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept
        : flights_(std::exchange(other.flights_, nullptr)), key_(other.key_) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (flights_ != nullptr) flights_->leave(key_);
    }

   private:
    friend class SingleFlight;
    Ticket(SingleFlight* flights, const SelectionKey& key) : flights_(flights), key_(key) {}
    SingleFlight* flights_;
    SelectionKey key_;
  };

  /// Nothing when the problem is postponed, or another thread still has its ticket after
  /// `patience`.
  std::optional<Ticket> enter(const SelectionKey& key, std::chrono::milliseconds patience);

  /// No ticket for the problem before `until`.
  void postpone(const SelectionKey& key, Clock::time_point until);

 private:
  struct Postponed {
    SelectionKey key;
    Clock::time_point until;
  };

  void leave(const SelectionKey& key) noexcept;
  bool flying(const SelectionKey& key) const;
  bool postponed(const SelectionKey& key);

  std::mutex mutex_;
  std::condition_variable left_;
  std::vector<SelectionKey> flying_;
  std::vector<Postponed> postponed_;
};

}  // namespace attune::chain
