// Random problems for a device: drawn as the command line says, legal, and small enough for it.
#pragma once

#include <chrono>
#include <optional>

#include "drawn/draw.hpp"
#include "problems/command_context.hpp"

namespace attune::cli {

/// A drawn point as its op reads it.
struct DrawnProblem {
  Point point;
  Target target;
};

class DrawnProblems {
 public:
  /// Reads OP, fields and --seed. On an accelerator a problem's least traffic is at most
  /// `most_bytes`. Throws UsageError, also when no such problem is legal.
  DrawnProblems(const CommandContext& command, const Invocation& call, double most_bytes);

  /// Random problem number `index`.
  DrawnProblem draw(std::uint64_t index) const;
  /// A point's problem; nothing when it is not legal, or too large.
  std::optional<DrawnProblem> at(const Point& point) const;

  bool is_fixed(std::string_view field) const { return draw_->is_fixed(field); }
  Point with_fixed(const Point& point) const { return draw_->with_fixed(point); }

  const Device& device() const { return *device_; }
  bool on_host() const;

 private:
  bool is_affordable(const NamedProblem& named) const;

  const CommandContext* command_;
  const Device* device_;
  double most_bytes_;
  mutable std::string why_not_;  // of the problem that was refused last
  std::optional<PointDraw> draw_;
};

/// When a command of several phases is to end: at --budget, or after `otherwise`, or when it is
/// interrupted.
class Deadline {
 public:
  Deadline(const Invocation& call, std::chrono::milliseconds otherwise);
  /// Whether this share of the time has gone.
  bool is_past(double share = 1) const;
  std::chrono::milliseconds left() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds all_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace attune::cli
