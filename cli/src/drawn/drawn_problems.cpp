#include "drawn/drawn_problems.hpp"

#include <attune/core/error.hpp>

#include "program/exit_code.hpp"
#include "program/interrupt.hpp"

namespace attune::cli {
namespace {

// Of one problem: what takes a host some tens of milliseconds.
constexpr double kMostHostBytes = 1e8, kMostHostFlops = 2e9;

}  // namespace

DrawnProblems::DrawnProblems(const CommandContext& command, const Invocation& call,
                             double most_bytes)
    : command_(&command),
      device_(&command.device_for(command.op(Point().problem().op))),
      most_bytes_(most_bytes) {
  draw_.emplace(command.seed(), parse_spec(call.words),
                [this](const NamedProblem& named) { return is_affordable(named); });
  static_cast<void>(draw(0));
}

bool DrawnProblems::on_host() const { return device_->info().id == cpu_device().info().id; }

bool DrawnProblems::is_affordable(const NamedProblem& named) const {
  const OpInfo& op = command_->op(named.op);
  try {
    const AnyProblem problem = op.parse(named.params);
    why_not_ = "every such problem is too large";
    return on_host() ? op.bytes(problem) <= kMostHostBytes && op.flops(problem) <= kMostHostFlops
                     : op.bytes(problem) <= most_bytes_;
  } catch (const InvalidArgument& error) {
    why_not_ = error.what();
    return false;
  }
}

DrawnProblem DrawnProblems::draw(std::uint64_t index) const {
  if (const auto point = draw_->point(index)) return *at(*point);
  throw UsageError(why_not_);
}

std::optional<DrawnProblem> DrawnProblems::at(const Point& point) const {
  NamedProblem named = point.problem();
  if (!is_affordable(named)) return std::nullopt;
  const OpInfo& op = command_->op(named.op);
  Target target{&op, op.parse(std::move(named.params)), device_, ""};
  target.text = short_text(op, target.problem);
  return DrawnProblem{point, std::move(target)};
}

Deadline::Deadline(const Invocation& call, std::chrono::milliseconds otherwise)
    : all_(call.options.duration("budget").value_or(otherwise)) {}

bool Deadline::is_past(double share) const {
  const std::chrono::duration<double> gone = Clock::now() - start_;
  return interrupted() || gone > share * std::chrono::duration<double>(all_);
}

std::chrono::milliseconds Deadline::left() const {
  const auto gone = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  return std::max(all_ - gone, std::chrono::milliseconds(0));
}

}  // namespace attune::cli
