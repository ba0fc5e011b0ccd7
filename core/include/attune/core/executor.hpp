// The executor: one call from problem to result. What an op's public functions are made of.
//
//   prepare (Op::prepare, when it has one) -> key -> select -> workspace -> run
#pragma once

#include <memory>

#include <attune/core/context.hpp>
#include <attune/core/plan.hpp>

namespace attune {

class Executor {
 public:
  explicit Executor(Context& context) : context_(&context) {}

  /// Selects and runs on the request's device and stream, in scratch memory of the request's, or
  /// allocated in the order of the stream. Throws InvalidArgument for memory that is not aligned,
  /// or that is given in two ways.
  template <class Op>
  Choice run(typename Op::Problem problem, typename Op::Args args, const Request& request) const {
    if constexpr (requires { Op::prepare(problem, args); }) Op::prepare(problem, args);
    const Request bound = bound_by_memory(Op::kName, request);
    const Choice choice = context_->select<Op>(problem, bound);
    run_selected(ProblemRef::of<Op>(problem), &args, choice, bound);
    return choice;
  }

  /// Selects only.
  template <class Op>
  Choice choose(typename Op::Problem problem, const Request& request) const {
    return context_->select<Op>(problem, request);
  }

  /// Selects once, for many launches, each of which is given its memory: throws InvalidArgument for
  /// a request that brings some.
  template <class Op>
  Plan<Op> plan(const typename Op::Problem& problem, const Request& request) const {
    const Request here = context_->on_own_device(request);
    refuse_memory(Op::kName, request);
    return Plan<Op>(problem, context_->select<Op>(problem, here), *here.device);
  }

  /// Runs a case: what the command line and the tests do with an op that they know only by name.
  Choice run(const Case& on, const Request& request) const;

  /// Runs a choice, with its own scratch memory.
  static void run_choice(ProblemRef problem, const void* args, const Choice& choice,
                         const Device& device, void* stream) {
    run_choice(problem, args, choice, device, stream, {});
  }

 private:
  static void run_choice(ProblemRef problem, const void* args, const Choice& choice,
                         const Device& device, void* stream, const CallMemory& memory);

  /// The request on the context's own device, whose choice fits the memory that is given.
  Request bound_by_memory(std::string_view op, const Request& request) const;
  static void refuse_memory(std::string_view op, const Request& request);

  /// run_choice() for the request's device; what it throws is an event first.
  void run_selected(ProblemRef problem, const void* args, const Choice& choice,
                    const Request& request) const;

  Context* context_;
};

}  // namespace attune
