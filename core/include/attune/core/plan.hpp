// A plan: a problem with its kernel and config, ready to launch. Selection happens when it is made;
// launching looks nothing up, takes no lock, allocates nothing and never waits, so that a launch
// may be captured in a graph.
#pragma once

#include <cstddef>
#include <span>

#include <attune/core/context.hpp>
#include <attune/core/error.hpp>
#include <attune/core/profiler.hpp>
#include <attune/core/workspace.hpp>

namespace attune {

/// Copyable, immutable, usable from several threads at once (each with its own workspace). The
/// context it was made from must outlive it.
template <class Op>
class Plan {
 public:
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  Plan(const Problem& problem, const Choice& choice, const Device& device)
      : problem_(problem),
        choice_(choice),
        device_(&device),
        workspace_bytes_(
            choice.kernel->erased_workspace_bytes(ProblemRef::of<Op>(problem_), choice.config)) {
    choice_.prepared = choice.prepare(ProblemRef::of<Op>(problem_), device);
  }

  const Problem& problem() const { return problem_; }
  const Choice& choice() const { return choice_; }
  const Device& device() const { return *device_; }
  /// Bytes that the address of a workspace is a multiple of.
  static constexpr std::size_t kWorkspaceAlignment = attune::kWorkspaceAlignment;
  /// Scratch memory that launch() needs, on the plan's device, aligned so.
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Queues the work on `stream` (of the plan's device; a CPU ignores it and returns when it is
  /// done). Throws InvalidArgument, before anything is launched, when `args` do not have the plan's
  /// problem or the workspace is too small or not aligned.
  void launch(const Args& args, void* stream = nullptr, std::span<std::byte> workspace = {}) const {
    if constexpr (requires { Op::device_of(args); }) {
      if (const DeviceId& at = Op::device_of(args); at != device_->info().id) {
        throw InvalidArgument(
            str(Op::kName, ": the tensors are on ", at, ", the plan is for ", device_->info().id));
      }
    }
    if constexpr (requires { Op::check_args(problem_, args); }) Op::check_args(problem_, args);
    check_workspace(Op::kName, workspace, workspace_bytes_);
    const ProfilerRange range(ProfilerRanges::kLaunches, [&] {
      return call_label(Op::kName, choice_, problem_text<Op>(problem_));
    });
    choice_.kernel->erased_run(ProblemRef::of<Op>(problem_), &args, choice_.config,
                               {stream, workspace, choice_.prepared, device_->threads()});
  }

 private:
  Problem problem_;
  Choice choice_;
  const Device* device_;
  std::size_t workspace_bytes_;
};

}  // namespace attune
